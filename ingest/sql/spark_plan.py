"""Spark's parse of a statement, judged before Spark runs it: it may read the project's tables, and do nothing else.

The judge sees the tree that Spark will run, not the text. It accepts the kinds of nodes that it knows, and refuses all others.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

from ingest.contract.row_rule_words import reason_outside_sql
from ingest.sql.catalog import Catalog
from ingest.sql.read_only import not_a_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Spark's classes for queries, as its parser makes them; then SHOW, DESCRIBE and EXPLAIN. Class names, without their packages.
QUERIES = """
    Aggregate Distinct Except Filter Generate GlobalLimit Intersect Join LateralJoin LimitAll LocalLimit LocalRelation NearestByJoin Offset
    OneRowRelation Pivot Project RelationTimeTravel RepartitionByExpression Sample Sort SubqueryAlias Union Unpivot WithWindowDefinition
    UnresolvedHaving UnresolvedHint UnresolvedInlineTable UnresolvedQualify UnresolvedRelation UnresolvedSubqueryColumnAliases
    UnresolvedTVFAliases UnresolvedTableValuedFunction UnresolvedWith
    MultiAlias UnresolvedAlias UnresolvedAttribute UnresolvedExtractValue UnresolvedFunction UnresolvedGenerator UnresolvedOrdinal
    UnresolvedPipeAggregateOrdinal UnresolvedRegex UnresolvedStar UnresolvedStarExceptOrReplace
"""
DESCRIPTIONS = """
    ShowCatalogsCommand ShowCollationsCommand ShowColumns ShowCreateTable ShowCurrentNamespaceCommand ShowFunctions ShowNamespaces
    ShowNamespacesCommand ShowTableProperties ShowTables ShowTablesExtended ShowViews
    DescribeColumn DescribeFunction DescribeNamespace DescribeQueryCommand DescribeRelation DescribeRelationJsonCommand ExplainCommand
    CurrentNamespace$ UnresolvedFunctionName UnresolvedNamespace UnresolvedTableOrView
"""
READS = frozenset(f"{QUERIES} {DESCRIPTIONS}".split())
# Arithmetic, comparisons, casts, windows, lambdas, subqueries: classes of this package compute values.
EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."
# Functions that make a table of their arguments. Others read tables by path or by name.
TABLE_FUNCTIONS = frozenset(
    (
        *("collations", "explode", "explode_outer", "inline", "inline_outer", "json_tuple", "posexplode", "posexplode_outer", "range"),
        *("sql_keywords", "stack", "variant_explode", "variant_explode_outer"),
    )
)


def refuse_all_but_reads(session: SparkSession, sql: str, catalog: Catalog, names: Collection[str]) -> None:
    """Raises InvalidInput SQL_NOT_A_QUERY unless `sql` is one statement that reads, and SQL_TABLE_UNKNOWN if it reads other tables.

    `names` are those of the catalog's names that this session knows. Raises Spark's own error for a text that it cannot parse.
    """
    jvm_session: Any = session._jsparkSession
    known = frozenset(tuple(name.lower().split(".")) for name in names)
    unknown: list[tuple[str, ...]] = []
    for kind, node, tables in _nodes(session, jvm_session.sessionState().sqlParser().parsePlan(sql), known):
        if kind.startswith(EXPRESSIONS):
            continue
        kind = kind.rpartition(".")[2]
        if kind not in READS:
            raise not_a_query(f"Spark parses it as {kind.removesuffix('$')}, which may do more than read")
        match kind:
            case "UnresolvedRelation" if not node.options().isEmpty():
                raise not_a_query("WITH (…) sets options of a table")
            case "UnresolvedRelation" | "UnresolvedTableOrView":
                name = _parts(node.multipartIdentifier())
                unknown += [name] if tuple(map(str.lower, name)) not in tables else []
            case "UnresolvedTableValuedFunction" if (name := _parts(node.name()))[-1].lower() not in TABLE_FUNCTIONS:
                raise not_a_query(f"{'.'.join(name)}() may read other tables than its arguments")
            case "UnresolvedFunction":
                _refuse_function(_parts(node.nameParts())[-1])
            case "UnresolvedGenerator":
                _refuse_function(str(node.name().funcName()))
    if unknown:
        raise catalog.unknown(".".join(unknown[0]))


def _refuse_function(name: str) -> None:
    if (reason := reason_outside_sql(name.lower())) is not None:
        raise not_a_query(f"{name.lower()}() {reason}")


Names = frozenset[tuple[str, ...]]


def _nodes(session: SparkSession, plan: Any, names: Names) -> Iterator[tuple[str, Any, Names]]:
    """The nodes of a tree, each with its class and the tables that it may name: `names`, and those of each WITH around it.

    Finds nodes wherever another one keeps them: in its fields, and in lists, pairs, maps and options there.
    """
    from py4j.java_gateway import JavaObject, is_instance_of

    gateway: Any = session.sparkContext._gateway
    types = ("org.apache.spark.sql.catalyst.trees.TreeNode", "scala.collection.Iterable", "scala.Product")
    of_class: dict[str, str | None] = {}
    waiting = [(plan, names)]
    while waiting:
        each, visible = waiting.pop()
        if not isinstance(each, JavaObject):
            continue
        name = str(each.getClass().getName())
        if name not in of_class:
            of_class[name] = next((kind for kind in types if is_instance_of(gateway, each, kind)), None)
        if of_class[name] == types[0]:
            yield name, each, visible
        if name.endswith(".UnresolvedWith"):
            for pair in _each(each.cteRelations()):  # a table of WITH sees those before it
                own = frozenset({(str(pair._1()).lower(),)})
                waiting.append((pair._2(), visible | own if each.allowRecursion() else visible))
                visible |= own
            waiting.append((each.child(), visible))
        elif of_class[name] is not None:
            waiting += [(part, visible) for part in _each(each if of_class[name] == types[1] else each.productIterator())]


def _each(collection: Any) -> Iterator[Any]:
    """The elements of a Scala collection or iterator."""
    elements = collection.iterator()
    while elements.hasNext():
        yield elements.next()


def _parts(name: Any) -> tuple[str, ...]:
    """The parts of a name. A part may contain dots, so they are not joined by one."""
    return tuple(str(name.mkString("\0")).split("\0"))
