# Releases of Spark DataFrames (docs/spark.md), on both versions of Spark that setup.py allows.
# pyspark has 400 MB, so that it is no package of .venv: a folder of each version is put on its path.
PYSPARKS := 3.5.9 4.3.0
# Of the same major versions as the packages of .venv; a server of Spark Connect needs the others.
PYSPARK_WITH := py4j==0.10.9.9 grpcio-status==1.76.0 googleapis-common-protos zstandard

.PHONY: spark test-spark $(PYSPARKS:%=test-spark-%)

spark: $(PYSPARKS:%=build/pyspark-%/fetched)
	@echo "Both versions of pyspark are in build"

build/pyspark-%/fetched: .ci/spark.mk | $(INSTALLED)
	@$(CACHED) pyspark-$* $(@D) --input $< --text "$(INTERPRETER)" -- sh -c '\
		$(call needs,java,which runs Spark); \
		echo "Fetching pyspark $* (once, a minute)"; \
		"$(CURDIR)/$(BIN)/python" -m pip install --quiet --disable-pip-version-check --no-deps \
			--target "$$INTO" pyspark==$* $(PYSPARK_WITH) && \
		touch "$$INTO/fetched"'

test-spark: $(PYSPARKS:%=test-spark-%)

# Spark Connect of 3.5 is older than the Protocol Buffers of .venv.
$(PYSPARKS:%=test-spark-%): test-spark-%: build/pyspark-%/fetched
	@echo "Releasing Spark DataFrames with Spark $* (two minutes)"
	@DPTREES_REQUIRE_SPARK=1 SPARK_LOCAL_IP=127.0.0.1 PYSPARK_PYTHON="$(CURDIR)/$(BIN)/python" \
		PYTHONPATH="$(CURDIR):$(CURDIR)/build/pyspark-$*" $(BIN)/python -m pytest -q \
		tests/pipelines/spark/test_spark.py
	@case $* in 3.*) ;; *) \
		DPTREES_REQUIRE_SPARK_CONNECT=1 SPARK_LOCAL_IP=127.0.0.1 \
		PYSPARK_PYTHON="$(CURDIR)/$(BIN)/python" \
		PYTHONPATH="$(CURDIR):$(CURDIR)/build/pyspark-$*" $(BIN)/python -m pytest -q \
		tests/pipelines/spark/test_connect.py "tests/docs/test_pages.py" -k "spark or connect" ;; esac
