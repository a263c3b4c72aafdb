"""The link graph of a node and the network between nodes: their file, schema and routes, and what they allow:
nominal, expected and highest plausible value of each kind of measurement.

Sources are cited in short: "De Sensi" is De Sensi et al., "Exploring GPU-to-GPU Communication", SC24; "Schieffer" is
Schieffer et al., "Understanding Data Movement in AMD Multi-GPU Systems with Infinity Fabric", 2024; "OpenPOWER" is the
evaluation of CUDA-aware MPI on GPU-enabled OpenPOWER systems (Summit and Sierra-like), 2019; "CommBench" is
Hidayetoglu et al., "CommBench", ICS'24.

Rates are Gb/s (10^9 bit/s) in one direction everywhere; every link is full duplex and the same both ways.

Here: what is where and how it is linked, and pure functions of that. Not here: verdicts, references; ReFrame.
"""
