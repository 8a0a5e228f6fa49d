"""The data that comes with the package: for each dataset a CSV file here, and the types of its columns."""

SCHEMAS = {
    "artworks": {"id": "int64", "artist": "string", "title": "string", "medium": "string", "year": "int64"},
    # Sentences about six planted topics, and how much pairs of words are of the same ones: `tools/make_topics.py`.
    "topics": {"text": "string"},
    "topics_judged": {"word": "string", "other": "string", "similarity": "float64"},
}
