"""What a user asks for: YAML text to frozen options, every problem at once with its line.

In: a YAML file, text or mapping, and settings. Out: a `Schema`. Open `options.py` first.
"""
