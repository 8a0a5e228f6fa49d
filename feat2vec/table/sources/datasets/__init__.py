"""The data that comes with the package: for each dataset a CSV file here, and the types of its columns."""

SCHEMAS = {"artworks": {"id": "int64", "artist": "string", "title": "string", "medium": "string", "year": "int64"}}
