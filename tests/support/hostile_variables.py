"""Variables that launchers, notebooks and users export, and that would change or end a run."""

ABSENT = "/nonexistent"
LAUNCHERS = {
    "ACCELERATE_DYNAMO_BACKEND": "EAGER",
    "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": "1",
    "ACCELERATE_MIXED_PRECISION": "bf16",
    "ACCELERATE_USE_DEEPSPEED": "true",
    "ACCELERATE_USE_FSDP": "true",
    "FSDP_OFFLOAD_PARAMS": "true",
    "FSDP_SHARDING_STRATEGY": "FULL_SHARD",
    "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "9",
    "MV2_COMM_WORLD_RANK": "0",
    "MV2_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_RANK": "0",
    "OMPI_COMM_WORLD_SIZE": "2",
    "PMI_RANK": "0",
    "PMI_SIZE": "2",
    "RANK": "0",
    "SLURM_LOCALID": "0",
    "SLURM_NTASKS": "2",
    "SLURM_PROCID": "0",
    "TORCHELASTIC_RUN_ID": "none",
    "WORLD_SIZE": "2",
}
LIBRARIES = {
    "DATASETS_VERBOSITY": "debug",
    "DNNL_MAX_CPU_ISA": "SSE41",
    "GIT_DIR": ABSENT,
    "GIT_INDEX_FILE": ABSENT,
    "GIT_WORK_TREE": ABSENT,
    "HF_DEBUG": "1",
    "HF_HUB_ENABLE_HF_TRANSFER": "1",
    "OPENSSL_CONF": ABSENT,
    "PYTHONBREAKPOINT": "nowhere.breakpoint",
    "PYTHONOPTIMIZE": "1",
    "PYTHONSTARTUP": ABSENT,
    "TORCHDYNAMO_DISABLE": "1",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1",
    "TORCH_COMPILE_DISABLE": "1",
    "TORCH_DEVICE_BACKEND_AUTOLOAD": "1",
    "TORCH_DISTRIBUTED_DEBUG": "DETAIL",
    "TORCH_LOGS": "+all",
    "TRANSFORMERS_VERBOSITY": "debug",
}
SERVERS = {
    "MLFLOW_ENABLE_ASYNC_LOGGING": "true",
    "MLFLOW_EXPERIMENT_NAME": "theirs",
    "MLFLOW_RUN_ID": "0" * 32,
    "PREFECT_FLOWS_DEFAULT_RETRIES": "1",
    "PREFECT_FLOWS_DEFAULT_RETRY_DELAY_SECONDS": "600",
    "PREFECT_HOME": ABSENT,
    "PREFECT_LOGGING_LOG_PRINTS": "true",
    "PREFECT_PROFILE": "theirs",
    "PREFECT_RESULTS_DEFAULT_STORAGE_BLOCK": "s3-bucket/theirs",
    "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "true",
    "PREFECT_SERVER_DATABASE_CONNECTION_URL": f"sqlite:///{ABSENT}/prefect.db",
    "PREFECT_TASKS_DEFAULT_PERSIST_RESULT": "true",
    "PREFECT_TASKS_DEFAULT_RETRIES": "3",
    "PREFECT_TASKS_REFRESH_CACHE": "true",
}
CONNECTIONS = {
    "ALL_PROXY": "socks5://127.0.0.1:9",
    "CURL_CA_BUNDLE": ABSENT,
    "REQUESTS_CA_BUNDLE": ABSENT,
    "SSLKEYLOGFILE": f"{ABSENT}/keys",
    "SSL_CERT_DIR": ABSENT,
    "SSL_CERT_FILE": ABSENT,
    "all_proxy": "socks5://127.0.0.1:9",
}
NEVER = LAUNCHERS | LIBRARIES | SERVERS | CONNECTIONS
"""None of these reaches a process of lce."""
PROXIES = {
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "HTTP_PROXY": "http://127.0.0.1:9",
    "NO_PROXY": "example.org,fd00::/8,[::1]",
    "http_proxy": "http://127.0.0.1:9",
    "no_proxy": "",
}
"""They pass, since a hub may need them, but not for servers of this machine."""
HOSTILE = NEVER | PROXIES | {"OMP_NUM_THREADS": "3", "PREFECT_API_REQUEST_TIMEOUT": "0.001"}
