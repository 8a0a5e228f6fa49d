"""Training on many machines: the processes of a cluster, rows and noise where the workers are.

In: TF_CONFIG, a folder of encoded rows. Out: a run folder.
Open `addresses.py` first.
"""
