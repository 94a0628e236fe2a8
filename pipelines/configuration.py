"""The configuration of a release: a YAML file, checked, and the plan that it leads to.

Every key is described in docs/configuration.md. Nothing here reads data or loads the release key,
and neither Beam nor SciPy is imported, so that `dptrees plan` answers at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from pydantic import ValidationError

from dpcore.ordered.planner import plan_mechanism
from dpcore.ordered.question import OrderedQuestion
from dpcore.privacy.budget import Budget, Neighbors
from dpcore.questions.question import Question
from dpcore.release.plan import ReleasePlan
from dpcore.uniform.plan import Estimator, TreePlan
from pipelines.composition import plan_release
from pipelines.hierarchy.plan import hierarchy_question, threshold_question
from pipelines.hierarchy.section import HierarchyTree
from pipelines.ordered.section import OrderedTree
from pipelines.release_section import AnyTree, ReleaseSection
from pipelines.sections.error import ConfigurationError, configuration_error
from pipelines.sections.yaml_document import parse_document, read_document
from pipelines.sparse.section import SparseTree, sparse_question
from transforms.key_reference import KeyReference
from transforms.readers.csv_format import CsvFormat

__all__ = ["Configuration", "ConfigurationError", "load_configuration", "parse_configuration"]


# The keys of a tree that dpcore may refuse once the budget is known.
_TREE_KEYS = (
    *("fanouts", "level_budgets", "level_weights", "widths", "quantiles"),
    *("estimation", "mechanism", "domain.cells", "domain", "invariants", "measure"),
)


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """A checked configuration. Relative paths start at the working directory.

    Args:
        source: the path of the file.
        release: the release's id.
        input_format: "parquet" or "csv".
        input_paths: files or globs, at least one.
        input_options: of the reader of the format, as `transforms.readers.read.ReadBatches` takes
        them. output: the folder of the release.
        key: where the release key lies; not loaded yet.
        confidence: of all intervals.
        neighbors: the neighbouring relation.
        budget: the whole release's, epsilon where a delta stands beside it.
        delta: of an (epsilon, delta) guarantee, None for a pure or zCDP one.
        trees: at least one, with names that differ.
    """

    source: str
    release: str
    input_format: str
    input_paths: tuple[str, ...]
    input_options: Mapping[str, CsvFormat]
    output: str
    key: KeyReference
    confidence: float
    neighbors: Neighbors
    budget: Budget
    trees: tuple[AnyTree, ...]
    delta: Fraction | None = None

    def plan(self) -> ReleasePlan:
        """The plan of every tree, each with its share of the budget (`pipelines.composition`).

        The number of rows counts as public only where the relation is substitute, the tree has no
        keys and no policy, of its domain or of the reader, drops rows.

        Raises:
            ConfigurationError: a share of the budget is too small or too large for a tree.
        """
        for index, tree in enumerate(self.trees):
            if self.delta is None or isinstance(tree, SparseTree) or tree.noise == "laplace":
                continue
            if isinstance(tree.level_budgets, tuple):
                raise ConfigurationError(
                    f"{self.source}: trees[{index}].level_budgets: beside a delta they must be "
                    "equal or optimal, because the budget of the levels is a rho that is found; "
                    "or ask for laplace noise"
                )
        return plan_release(self)

    def public_total(self, tree: OrderedTree) -> bool:
        """Whether the number of rows that a tree counts is public, so that its root is exact."""
        return (
            self.neighbors is Neighbors.SUBSTITUTE
            and tree.keys is None
            and not tree.domain.drops_rows
            and not self.reader_drops_rows
        )

    @property
    def reader_drops_rows(self) -> bool:
        """Whether rows may be left out before any domain sees them: malformed ones of CSV."""
        return any(format.malformed == "drop" for format in self.input_options.values())

    def tree_plan(self, tree: OrderedTree, budget: Budget) -> TreePlan:
        """The plan of one tree.

        Raises:
            ValueError: the budget is too small or too large for it, or its choices do not fit.
        """
        return plan_mechanism(
            tree.mechanism,
            leaves=tree.domain.cells,
            budget=budget,
            neighbors=self.neighbors,
            public_total=self.public_total(tree),
            keyed=tree.keys is not None,
            objective=tree.planned_for,
            fanouts=tree.fanouts,
            level_budgets=tree.level_budgets,
            estimator=Estimator(tree.estimation),
        )

    def question(self, index: int, budget: Budget, *, own: bool = False) -> Question:
        """The question of one tree.

        Args:
            index: of the tree.
            budget: its own share.
            own: the share is an epsilon, and of delta the tree gets the same share.

        Raises:
            ConfigurationError: the share is too small or too large, or choices do not fit.
        """
        tree = self.trees[index]
        try:
            delta = None
            if own and self.delta is not None:
                delta = self.delta * budget.amount / self.budget.amount
            if isinstance(tree, SparseTree):
                return sparse_question(
                    tree,
                    epsilon=budget.amount,
                    delta=delta,
                    neighbors=self.neighbors,
                    confidence=self.confidence,
                )
            if isinstance(tree, HierarchyTree):
                if own or tree.mechanism == "thresholds":
                    return threshold_question(
                        tree,
                        epsilon=budget.amount,
                        delta=delta,
                        neighbors=self.neighbors,
                        confidence=self.confidence,
                    )
                return hierarchy_question(
                    tree,
                    budget=budget,
                    neighbors=self.neighbors,
                    confidence=self.confidence,
                    total_known=not self.reader_drops_rows,
                )
            return OrderedQuestion(
                name=tree.name,
                domain=tree.domain,
                plan=self.tree_plan(tree, budget),
                keys=tree.keys,
                quantiles=tree.asked_quantiles,
                confidence=self.confidence,
                weight=tree.weight,
                objective=tree.planned_for,
                consistency=tree.asked_consistency,
            )
        except ValueError as error:
            raise self._refusal(index, error) from None

    def _refusal(self, index: int, error: ValueError) -> ConfigurationError:
        """A refusal of dpcore at the key that it names, else at the budget."""
        sentence, tree = str(error), self.trees[index]
        field, _, rule = sentence.partition(": ")
        key = {
            "level_amounts": "level_budgets",
            "estimator": "estimation",
            "domain": tree.size_key.removeprefix("."),
        }.get(field, field)
        if key == "estimation" and isinstance(tree, OrderedTree) and not self.public_total(tree):
            rule += (
                "; it is public under substitute, where the tree has no by and no policy of its "
                "domain or of the input drops rows"
            )
        if key == "delta":
            return ConfigurationError(f"{self.source}: privacy.delta: trees[{index}]: {rule}")
        if key in _TREE_KEYS:
            return ConfigurationError(f"{self.source}: trees[{index}].{key}: {rule}")
        return ConfigurationError(
            f"{self.source}: privacy.{self.budget.measure.value}: trees[{index}] cannot be "
            f"planned with its share of the budget: {sentence}"
        )


def load_configuration(path: str) -> Configuration:
    """Read and check a configuration file.

    Args:
        path: of a YAML file in UTF-8.

    Returns:
        The configuration; files of keys that it names have been read.

    Raises:
        ConfigurationError: one sentence with the file, the key, the value and the rule.
    """
    return _checked(read_document(path), path)


def parse_configuration(text: str, source: str = "configuration") -> Configuration:
    """Check the text of a configuration.

    Args:
        text: YAML.
        source: where it comes from, for messages.

    Returns:
        The configuration.

    Raises:
        ConfigurationError: as `load_configuration`.

    >>> configuration = parse_configuration('''
    ... release: ages-2024
    ... input: {format: csv, path: ages/*.csv}
    ... output: out/ages
    ... key_file: release.key
    ... privacy: {epsilon: 0.1, neighbors: add_remove}
    ... trees:
    ...   - name: age
    ...     domain: {column: age, type: integer, lower: 0, upper: 120}
    ... ''')
    >>> configuration.budget.amount, configuration.plan().questions[0].domain.cells
    (Fraction(1, 10), 120)
    """
    return _checked(parse_document(text, source), source)


def _checked(values: object, source: str) -> Configuration:
    if values is None:
        raise ConfigurationError(f"{source}: is empty")
    try:
        section = ReleaseSection.model_validate(values)
    except ValidationError as error:
        raise configuration_error(source, error) from None
    return Configuration(
        source=source,
        release=section.release,
        input_format=section.input.format,
        input_paths=section.input.path,
        input_options={"csv": section.input.csv} if section.input.format == "csv" else {},
        output=section.output,
        key=KeyReference(reference=section.key or f"file:{section.key_file}"),
        confidence=section.confidence,
        neighbors=Neighbors(section.privacy.neighbors),
        budget=section.privacy.budget,
        delta=section.privacy.delta,
        trees=section.trees,
    )
