"""The strongest peers of the benchmarks: a command for each, and `timed_command`, which measures theirs and ours.

Each command reads the rows that ours reads, trains at the best settings that are known of the peer, and writes what it
has learnt. It prints a line when its training begins and a line when it ends, and is a script of its own so that it
imports nothing which the peer does not need.
"""
