"""What a session tells beside verdicts: association, scaling, crossover, slowdown, observations of the SC24 paper.

Here: one module for each finding. Not here: anything that turns a run red by its speed.
"""
