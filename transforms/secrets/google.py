"""``gcp-secret://PROJECT/NAME/VERSION``: a version of a secret in Google's Secret Manager.

It is read as the account that runs: of a worker of Dataflow the worker service account, which needs
roles/secretmanager.secretAccessor on the secret, and nothing else of it.
"""

from typing import Any

from dptrees.transforms.passing import may_pass
from dptrees.transforms.secrets.scheme import Scheme, SecretError

_SECONDS = 30
# By names of classes of google.api_core and google.auth.
_REASONS = {
    "NotFound": "there is no such secret, or no such version of it",
    "PermissionDenied": "may not be read by the account that runs, which needs "
    "roles/secretmanager.secretAccessor on it",
    "Unauthenticated": "the credentials of the account that runs are refused",
    "FailedPrecondition": "this version is disabled or destroyed",
    "InvalidArgument": "is no name of a version of a secret",
    "DefaultCredentialsError": "there are no credentials of Google Cloud here",
}


def _load(reference: str, name: str) -> str:
    try:
        from google.api_core.retry import Retry

        client = _client()
    except ImportError:
        raise SecretError(
            f"{name}: {reference} needs the client of Secret Manager: in a clone of dptrees, "
            "pip install '.[gcp]'"
        ) from None
    except Exception as error:
        raise _secret_error(reference, name, error) from None
    project, secret, version = reference.partition("://")[2].split("/")
    path = f"projects/{project}/secrets/{secret}/versions/{version}"
    try:
        request, retry = {"name": path}, Retry(timeout=_SECONDS)
        answer = client.access_secret_version(request=request, retry=retry, timeout=_SECONDS)
        return bytes(answer.payload.data).decode("ascii", errors="replace")
    except Exception as error:
        raise _secret_error(reference, name, error) from None


def _client() -> Any:
    from google.cloud.secretmanager import SecretManagerServiceClient

    return SecretManagerServiceClient()


def _secret_error(reference: str, name: str, error: Exception) -> SecretError:
    kinds = [each.__name__ for each in type(error).__mro__]
    for kind, reason in _REASONS.items():
        if kind in kinds:
            return SecretError(f"{name}: {reference}: {reason}")
    if may_pass(error) or getattr(error, "retryable", False):
        return SecretError(f"{name}: {reference}: Secret Manager does not answer now", again=True)
    return SecretError(f"{name}: {reference} cannot be read ({type(error).__name__})")


GOOGLE = Scheme(
    name="gcp-secret",
    written="gcp-secret://PROJECT/NAME/VERSION",
    pattern=r"gcp-secret://[a-z0-9:.-]+/[A-Za-z0-9_-]{1,255}/[A-Za-z0-9_-]+",
    load=_load,
    remote=True,
)
