"""The vendor suites: where they come from, how they are built and run, and their outputs as runs like fabricbench's."""
