"""Many snapshots: on the processes of this machine, on a Dask cluster, or as they arrive; each done once."""
