"""Pages and charts for a person: reports, explanations, the explorer.

In: a `TrainedRun`. Out: SVG, HTML, a local server. Open `report.py` first.
"""
