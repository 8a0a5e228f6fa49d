"""Training on many machines: the processes of a cluster, rows and noise where the workers are.

In: TF_CONFIG, a folder of encoded rows. Out: a run folder.
Open `training.py` first, then `cluster_fitting.py` and `servers.py`; `addresses.py` and `node.py` are of the processes.
"""
