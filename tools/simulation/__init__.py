"""Training with parameter servers on paper: discrete events of workers, servers, links and a chief.

In: sizes of tables and machines, and costs that `calibration` measured. Out: steps a second, loads, bytes, memory.
Open `cluster.py` first.
"""
