"""The DuckDB catalog: what the store holds, as views anyone can query.

`build` makes the file from records and plans; `queries` reads it. Both are free of torch, Prefect
and MLflow. The file is a projection: delete it and `lce rebuild catalog` brings it back.
"""
