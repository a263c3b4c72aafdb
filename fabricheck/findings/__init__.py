"""What a session tells beside verdicts: association, scaling, crossover, slowdown, observations of the SC24 paper.

Of two settings or programs, A and B interleaved in one job: does a setting still help, does another tool get the same.

Here: one module for each finding. Not here: anything that turns a run red by its speed.
"""
