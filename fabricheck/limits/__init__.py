"""What a node and its network allow each kind of measurement: nominal, expected and highest plausible value.

Sources are cited in short: "De Sensi" is De Sensi et al., "Exploring GPU-to-GPU Communication", SC24; "Schieffer" is
Schieffer et al., "Understanding Data Movement in AMD Multi-GPU Systems with Infinity Fabric", 2024; "OpenPOWER" is the
evaluation of CUDA-aware MPI on GPU-enabled OpenPOWER systems (Summit and Sierra-like), 2019; "CommBench" is
Hidayetoglu et al., "CommBench", ICS'24.

Rates are Gb/s (10^9 bit/s) in one direction everywhere.

Here: pure functions of a link graph and a question. Not here: the graph (topology), measured values (yardsticks).
"""
