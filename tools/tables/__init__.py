"""The parts of `tools/bench_tables.py`: real tables, questions about them, and who answers.

In: tables that installed packages hold. Out: one record a (table, split, seed, candidate). Open `spec.py` first, then
`sources.py` (the tables), `encoding.py` and `questions.py` (what is asked), `completing.py` and `predicting.py` (the
peers), `ours.py` (what is measured), `running.py` (the loop over all) and `report.py`.
"""
