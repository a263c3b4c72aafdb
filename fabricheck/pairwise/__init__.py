"""Many nodes measured in pairs: which pairs in which round, and which part of the network explains what they gave."""
