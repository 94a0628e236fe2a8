"""``aws-secretsmanager://REGION/NAME``: a secret in AWS Secrets Manager.

``?stage=AWSPREVIOUS`` or ``?version=ID`` at the end names another version than the current one. It
is read as boto3 finds its credentials; they need secretsmanager:GetSecretValue on the secret, and
kms:Decrypt where its key is one of your own.
"""

from typing import Any
from urllib.parse import parse_qs, urlsplit

from dptrees.transforms.passing import may_pass
from dptrees.transforms.secrets.scheme import Scheme, SecretError

_REASONS = {
    "ResourceNotFoundException": "there is no such secret, or no such version of it",
    "AccessDeniedException": "may not be read by the account that runs, which needs "
    "secretsmanager:GetSecretValue on it",
    "DecryptionFailure": "may not be decrypted by the account that runs, which needs kms:Decrypt",
    "InvalidRequestException": "is marked for deletion",
    "UnrecognizedClientException": "the credentials of the account that runs are refused",
    "InvalidClientTokenId": "the credentials of the account that runs are refused",
    "ExpiredTokenException": "the credentials of the account that runs have expired",
    "NoCredentialsError": "there are no credentials of AWS here",
}
_PASSING = ("ThrottlingException", "InternalServiceError", "RequestLimitExceeded")
_ARGUMENTS = {"stage": "VersionStage", "version": "VersionId"}


def _load(reference: str, name: str) -> str:
    parts = urlsplit(reference)
    chosen = {_ARGUMENTS[key]: values[0] for key, values in parse_qs(parts.query).items()}
    try:
        client = _client(parts.netloc)
        answer = client.get_secret_value(SecretId=parts.path.removeprefix("/"), **chosen)
    except ImportError:
        raise SecretError(
            f"{name}: {reference} needs boto3: in a clone of dptrees, pip install '.[aws]'"
        ) from None
    except Exception as error:
        raise _secret_error(reference, name, error) from None
    if "SecretString" in answer:
        return str(answer["SecretString"])
    return bytes(answer["SecretBinary"]).decode("ascii", errors="replace")


def _client(region: str) -> Any:
    import boto3

    return boto3.session.Session().client("secretsmanager", region_name=region)


def _secret_error(reference: str, name: str, error: Exception) -> SecretError:
    response = getattr(error, "response", None)
    code = response.get("Error", {}).get("Code", "") if isinstance(response, dict) else ""
    reason = _REASONS.get(code) or _REASONS.get(type(error).__name__)
    if reason is not None:
        return SecretError(f"{name}: {reference}: {reason}")
    if code in _PASSING or may_pass(error):
        return SecretError(f"{name}: {reference}: Secrets Manager does not answer now", again=True)
    return SecretError(f"{name}: {reference} cannot be read ({code or type(error).__name__})")


AMAZON = Scheme(
    name="aws-secretsmanager",
    written="aws-secretsmanager://REGION/NAME",
    pattern=r"aws-secretsmanager://[a-z0-9-]+/[A-Za-z0-9/_+=.@:-]+"
    r"(\?(stage|version)=[A-Za-z0-9_-]+)?",
    load=_load,
    remote=True,
)
