"""The one packaging file of dptrees; Beam ships the project to its workers with --setup_file.

The version is read from the source text of dpcore, because a worker or a fresh virtual environment
runs this file before any third-party package is installed.
"""

import ast
import os
import re
from pathlib import Path

from setuptools import find_packages, setup

# These packages of dptrees are at the top of the project, and inside dptrees when it is installed.
FOLDERS = ("dpcore", "transforms", "pipelines")
INSIDE = find_packages(include=[f"{name}{inner}" for name in FOLDERS for inner in ("", ".*")])


def version() -> str:
    """Return the literal that dpcore/__init__.py assigns to ``__version__``."""
    source = Path(__file__).resolve().parent / "dpcore" / "__init__.py"
    for statement in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__version__":
            return str(ast.literal_eval(statement.value))
    raise RuntimeError("dpcore/__init__.py assigns no __version__")


# Where the project is published: whoever builds a distribution for an index names the address.
URL = os.environ.get("DPTREES_URL", "").rstrip("/")
PAGES = {"Documentation": "docs/index.md", "Changelog": "CHANGELOG.md", "Security": "SECURITY.md"}


def description() -> str:
    """Return the README, with absolute links if the project's address is known.

    Beam's workers and images build dptrees without this page.
    """
    readme = Path(__file__).resolve().parent / "README.md"
    if not readme.exists():
        return ""
    text = readme.read_text(encoding="utf-8")
    return re.sub(r"\]\((?!https?:|#)", f"]({URL}/blob/v{version()}/", text) if URL else text


# The S3 server of the tests: moto, with what its server needs and no other service does.
S3_SERVER = ["boto3", "flask", "flask-cors", "moto[s3]"]
# A ledger in PostgreSQL.
POSTGRESQL = ["psycopg[binary]>=3.2,<4"]
# What `import dptrees` draws with, and gives frames of, where they are asked for.
NOTEBOOK = ["matplotlib>=3.8,<4", "pandas>=2,<4"]
# Tables that rows are read from. BigQuery's client is in gcp.
ICEBERG = ["pyiceberg[sql-sqlite]>=0.12,<0.13"]
DELTA = ["deltalake>=1.6,<2"]
SQL = ["adbc-driver-postgresql>=1.11,<2"]
# Any source with a driver of ADBC.
ADBC = ["adbc-driver-manager>=1.11,<2", "adbc-driver-sqlite>=1.11,<2"]
DUCKDB = ["adbc-driver-manager>=1.11,<2", "duckdb>=1.4,<3"]
SNOWFLAKE = ["adbc-driver-manager>=1.11,<2", "adbc-driver-snowflake>=1.11,<2"]
TABLES = [*ICEBERG, *DELTA, *SQL, *ADBC]
# Drivers of 70 MB each, whose tests `make test` skips.
LARGE_DRIVERS = [*DUCKDB, *SNOWFLAKE]
# DataFrames of Spark. Its Arrow batches need pandas; dptrees does not.
SPARK = ["pandas>=2.2,<4", "pyspark>=3.5,<5"]
# What Beam YAML cannot start without. The rest of its extra wants an older pandas, for files of CSV
# and JSON alone.
YAML = ["docstring-parser>=0.15,<1"]
TEST = [
    *S3_SERVER,
    *POSTGRESQL,
    *TABLES,
    *NOTEBOOK,
    *YAML,
    # The schemas of workflows, forms and CITATION.cff.
    "check-jsonschema>=0.39,<1",
    "dp-accounting>=0.6,<0.7",
    "hypothesis",
    # The notebooks of examples/ run in real kernels.
    "ipykernel>=6,<8",
    "jsonschema>=4,<5",
    # The schemas of Kubernetes, for the manifests of deploy/.
    "kubernetes-validate>=1.31,<2",
    "nbclient>=0.10,<0.12",
    "polars>=1,<3",
    "prometheus-client>=0.20,<1",
    "pytest",
    "pytest-xdist",
    # Builds wheels without another package.
    "setuptools>=77",
]
# The site of docs/ (`make docs`): nothing that a release needs.
DOCS = ["mkdocs>=1.6,<2", "mkdocs-material>=9.7,<10", "mkdocstrings-python>=2,<3"]
# The operators of tests/mutants.py (`make mutants`).
MUTANTS = ["cosmic-ray>=8.4,<9"]
DEV = [*TEST, *LARGE_DRIVERS, *DOCS, *MUTANTS, "mypy", "ruff", "types-PyYAML"]

setup(
    name="dptrees",
    version=version(),
    description="Differentially private counts over trees, on Apache Beam",
    long_description=description(),
    long_description_content_type="text/markdown",
    author="dptrees contributors",
    license="Apache-2.0",
    license_files=["LICENSE"],
    url=URL or None,
    project_urls={name: f"{URL}/blob/v{version()}/{path}" for name, path in PAGES.items() if URL},
    keywords=[
        *("differential privacy", "Apache Beam", "quantiles", "cumulative distribution function"),
        *("hierarchical counts", "synthetic data", "census", "statistical disclosure control"),
    ],
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Developers",
        "Intended Audience :: Information Technology",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        *(f"Programming Language :: Python :: 3.{minor}" for minor in range(10, 15)),
        "Topic :: Database",
        "Topic :: Scientific/Engineering :: Information Analysis",
        "Topic :: Security",
        "Topic :: System :: Distributed Computing",
        "Typing :: Typed",
    ],
    python_requires=">=3.10",
    packages=["dptrees", *(f"dptrees.{name}" for name in INSIDE)],
    package_dir={f"dptrees.{name}": name for name in FOLDERS},
    package_data={"dptrees": ["py.typed"], "dptrees.pipelines": ["templates/*/*"]},
    # The upper bounds of numpy and pyarrow are those of apache-beam 2.77. Both ends of Beam's range
    # are tested: `make test-oldest-beam` has the older one (docs/engines.md).
    install_requires=[
        # The ledger's tables, and the versions of them.
        "alembic>=1.13,<2",
        "apache-beam>=2.75,<2.78",
        # Without an upper end, so that fixes of its faults reach every installation.
        "cryptography>=38",
        "jinja2",
        "mmh3>=5",
        # From 1.25 on np.add.at is as fast as np.bincount.
        "numpy>=1.25,<2.5",
        "pyarrow<26",
        "pydantic>=2",
        "PyYAML",
        "scipy>=1.12",
        "sqlalchemy>=2,<3",
        "tqdm",
        "typing_extensions",
    ],
    extras_require={
        "aws": ["apache-beam[aws]>=2.75,<2.78"],
        "gcp": ["apache-beam[gcp]>=2.75,<2.78"],
        "notebook": NOTEBOOK,
        "postgresql": POSTGRESQL,
        "iceberg": ICEBERG,
        "delta": DELTA,
        "spark": SPARK,
        "sql": SQL,
        "adbc": ADBC,
        "duckdb": DUCKDB,
        "snowflake": SNOWFLAKE,
        "docs": DOCS,
        "yaml": ["apache-beam[yaml]>=2.75,<2.78"],
        "test": TEST,
        "dev": DEV,
    },
    entry_points={"console_scripts": ["dptrees = dptrees.pipelines.cli.command:main"]},
    # Typed packages are read from disk by type checkers.
    zip_safe=False,
)
