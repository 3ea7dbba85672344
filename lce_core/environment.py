"""Environment variables of this process and of all processes that it starts.

Libraries read hundreds of variables. Launchers (Slurm, MPI, torchrun, Accelerate) export some that
change training, and Prefect, MLflow, git and OpenSSL read others that a user set for something
else. Only the variables listed here pass, and those that the user names in LCE_PASS.

Callers pass `os.environ`, because lce_core itself reads no environment variable.
"""

import ipaddress
import os
import re
from collections.abc import Mapping, MutableMapping
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import urlsplit

PASS = "LCE_PASS"
"""Variable with the names of further variables that pass, such as "UCX_*,MY_TOKEN"."""

PREFECT_RESTRICTING = (
    "PREFECT_SERVER_API_CSRF_PROTECTION_ENABLED",
    "PREFECT_SERVER_API_CSRF_TOKEN_EXPIRATION",
    "PREFECT_SERVER_API_MAX_PARAMETER_SIZE",
    "PREFECT_SERVER_CSRF_PROTECTION_ENABLED",
    "PREFECT_SERVER_CSRF_TOKEN_EXPIRATION",
    "PREFECT_SERVER_UI_ENABLED",
    "PREFECT_UI_ENABLED",
)
"""Variables of the user's environment that servers of lce keep: they only restrict a server."""

_PASSED = re.compile(
    "|".join(
        (
            "HOME|LOGNAME|PATH|TMPDIR|TZ|USER|XDG_(CACHE|CONFIG)_HOME",
            "COLORTERM|COLUMNS|FORCE_COLOR|LANG|LANGUAGE|LC_.*|LINES|NO_COLOR|TERM",
            "_(LCE|TYPER)_.*|COMP_.*",  # completion in a shell
            "LD_(LIBRARY_PATH|PRELOAD)|MALLOC_.*",
            "PYTHON(DONTWRITEBYTECODE|FAULTHANDLER|HASHSEED|HOME|IOENCODING|NOUSERSITE|PATH"
            "|PYCACHEPREFIX|SAFEPATH|UNBUFFERED|USERBASE|UTF8)",
            "CC|CPATH|CXX|LIBRARY_PATH|TORCHINDUCTOR_CACHE_DIR|TRITON_CACHE_DIR",  # torch.compile
            "(CUBLAS|CUDA|FI|GLOO|NCCL)_.*|NVIDIA_TF32_OVERRIDE|PYTORCH_(CUDA_)?ALLOC_CONF",
            "ATEN_CPU_CAPABILITY|(GOMP|KMP|MKL|OMP|OPENBLAS)_.*|TOKENIZERS_PARALLELISM",
            "HF_(DATASETS_(CACHE|OFFLINE)|ENDPOINT|HOME|TOKEN|TOKEN_PATH)|TRANSFORMERS_OFFLINE",
            "HF_HUB_(CACHE|DISABLE_TELEMETRY|DISABLE_XET|DOWNLOAD_TIMEOUT|ETAG_TIMEOUT|OFFLINE)",
            "DO_NOT_TRACK|LCE_.*|PIP_.*|RAY_.*",
            "MLFLOW_(DISABLE_TELEMETRY|HTTP_REQUEST_.*|S3_.*|TRACKING_.*)",
            "AWS_.*|AZURE_STORAGE_.*|GOOGLE_APPLICATION_CREDENTIALS",  # artifacts of MLflow
            "PREFECT_(API|CLIENT)_.*",
            *PREFECT_RESTRICTING,
            "(?i:(ALL|HTTP|HTTPS|NO)_PROXY)|SSL_CERT_(DIR|FILE)|(CURL|REQUESTS)_CA_BUNDLE",
        )
    )
)
_NOTABLE = re.compile(
    "(ACCELERATE|ATEN|CUDNN|DATASETS|DNNL|FSDP|GIT|HF|LOCAL|MASTER|MLFLOW|MV2|OMPI|ONEDNN|PMI|PMIX"
    "|PREFECT|PYTORCH|SLURM|SSL|TORCH[A-Z]*|TRANSFORMERS|XLA)_.*"
    "|PYTHON.*|SSLKEYLOGFILE|RANK|WORLD_SIZE|(?i:[A-Z]+_PROXY)|.*_CA_BUNDLE"
)
"""Variables of which a user may expect an effect. A shell has dozens of others."""
_NUMERIC = re.compile(
    "(ATEN|CUBLAS|CUDNN|DNNL|GOMP|KMP|MKL|NCCL|NVIDIA|OMP|ONEDNN|OPENBLAS|PYTORCH|TORCH[A-Z]*)_.*"
    "|XLA_.*|LD_PRELOAD"
)
_NOT_NUMERIC = re.compile(".*ALLOC_CONF|.*_DIR|KMP_(DUPLICATE_LIB_OK|INIT_AT_FORK)|OMP_NUM_THREADS")
"""Exceptions of `_NUMERIC`. lce itself sets OMP_NUM_THREADS, and scikit-learn these KMP_ ones."""
_CERTIFICATES = ("CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_HOST = re.compile(r"\*?\.?\w[\w.-]*(:\d+)?(/\d+)?", re.ASCII)
_ROOT = Path(__file__).resolve().parents[1]

removed: dict[str, str] = {}


def restrict(variables: MutableMapping[str, str]) -> None:
    """Remove all variables that do not pass, before libraries read them."""
    kept = passed(variables)
    for name in [name for name in variables if name not in kept]:
        removed[name] = variables.pop(name)
    variables.update(kept)


def ignored(variables: Mapping[str, str]) -> list[str]:
    """Return the names of variables that do not pass although a user may expect an effect."""
    kept = passed(variables)
    return sorted(name for name in {*variables, *removed} - {*kept} if _NOTABLE.fullmatch(name))


def passed(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that pass.

    No client sends requests for this machine to the user's proxies. Proxies that are no HTTP
    servers, and certificates that cannot be read, do not pass: with them httpx creates no client,
    even for an address that needs neither.
    """
    more = [name.strip() for name in variables.get(PASS, "").split(",")]
    kept = {
        name: value
        for name, value in variables.items()
        if (_PASSED.fullmatch(name) or any(fnmatchcase(name, pattern) for pattern in more))
        and _is_usable(name, value)
    }
    direct = [kept.pop(name) for name in [*kept] if name.upper() == "NO_PROXY"]
    if any(name.upper().endswith("_PROXY") for name in kept):
        # Libraries disagree which of the two names counts.
        kept["NO_PROXY"] = kept["no_proxy"] = _without_proxy(",".join(direct))
    return kept


def for_child(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a child process that runs the code of this checkout.

    `python -m` searches the current folder first. If that folder contained a file `tasks.py` or
    another checkout, the child would run that code instead of the code that planned the study.
    """
    paths = [str(_ROOT), *filter(None, variables.get("PYTHONPATH", "").split(os.pathsep))]
    code = {"PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)), "PYTHONSAFEPATH": "1"}
    return {**passed(variables), **code}


def allocator_settings(variables: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables that let torch use almost all memory of a GPU.

    Expandable segments leave few gaps that no tensor fits into. A user's own settings win.
    """
    if any(name in variables for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")):
        return {}
    return {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}


def numeric_switches(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables from which libraries choose kernels, precision or order of sums."""
    return {
        name: value
        for name, value in sorted(variables.items())
        if _NUMERIC.fullmatch(name) and not _NOT_NUMERIC.fullmatch(name)
    }


def _is_usable(name: str, value: str) -> bool:
    if name.upper() in ("ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY"):
        return _is_http(value)
    return name not in _CERTIFICATES or _holds_certificates(Path(value))


def _is_http(address: str) -> bool:
    try:
        parts = urlsplit(address if "://" in address else f"http://{address}")
        host = parts.hostname or ""
        is_host = bool(_HOST.fullmatch(host)) or _is_ipv6(host)
        return parts.scheme in ("http", "https") and is_host and parts.port != 0
    except ValueError:  # of the port or of brackets
        return False


def _holds_certificates(path: Path) -> bool:
    import ssl  # takes time, and few users set these variables

    if path.is_dir():
        return True
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except OSError:
        return False
    return True


def _without_proxy(given: str) -> str:
    """Return a NO_PROXY that httpx can parse: it fails at networks of IPv6 and at brackets."""
    entries = [entry.strip().strip("[]") for entry in given.split(",")]
    if "*" in entries:
        return "*"
    kept = [entry for entry in entries if _HOST.fullmatch(entry) or _is_ipv6(entry)]
    return ",".join(dict.fromkeys((*kept, *_LOOPBACK)))


def _is_ipv6(entry: str) -> bool:
    try:
        return ipaddress.ip_address(entry).version == 6
    except ValueError:
        return False
