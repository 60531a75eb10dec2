# Two images: `bridge` (the default) and `mirror`. docs/docker.md says how to build and run them. BuildKit is needed.
#
# Any Debian 12 will do as a base, with or without Python: the mirror needs its Java 17.
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS base
# hadolint ignore=DL3008 # Debian keeps one version of a package and only fixes it
RUN if ! command -v python3 > /dev/null; then \
      apt-get update && apt-get install --yes --no-install-recommends python3 && rm -rf /var/lib/apt/lists/*; \
    fi \
    && groupadd --gid 65532 oms \
    && useradd --uid 65532 --gid 65532 --no-create-home --home-dir /tmp --shell /usr/sbin/nologin oms


# /opt/oms, which the images get, has no pip: /opt/pip fills it from outside.
FROM base AS tools
# hadolint ignore=DL3008
RUN if ! python3 -c 'import ensurepip' 2> /dev/null; then \
      apt-get update && apt-get install --yes --no-install-recommends python3-venv && rm -rf /var/lib/apt/lists/*; \
    fi \
    && python3 -m venv /opt/pip \
    && python3 -m venv --without-pip /opt/oms


FROM tools AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY tests/conformance tests/conformance
COPY adapters adapters
COPY bridge bridge
RUN --mount=type=cache,target=/root/.cache/pip --mount=type=secret,id=pip,target=/etc/pip.conf \
    /opt/pip/bin/pip --python /opt/oms/bin/python install --constraint constraints.txt '.[kafka,rabbitmq,fast,jwt,otel]'
# The label's version is an argument; it must not differ from the one in bridge/__init__.py.
ARG VERSION=unreleased
RUN said="$(/opt/oms/bin/oms-bridge --version)" \
    && case "${VERSION}" in \
         unreleased | "${said##* }") ;; \
         *) echo "VERSION=${VERSION} is not that of bridge/__init__.py, ${said##* }" >&2; exit 1 ;; \
       esac


FROM build AS build-mirror
RUN --mount=type=cache,target=/root/.cache/pip --mount=type=secret,id=pip,target=/etc/pip.conf \
    /opt/pip/bin/pip --python /opt/oms/bin/python install --constraint constraints.txt '.[mirror]'


FROM tools AS jars
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends maven && rm -rf /var/lib/apt/lists/*
COPY --from=build-mirror /opt/oms /opt/oms
RUN --mount=type=cache,target=/root/.m2/repository --mount=type=secret,id=maven,target=/root/.m2/settings.xml \
    XDG_CACHE_HOME=/cache /opt/oms/bin/python -c 'from bridge.mirror.jars import spark_jars; print(*spark_jars())' \
    && mv /cache/openmessaging-bridge/spark-* /jars


FROM base AS mirror
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/* \
    && install --directory --owner=65532 --group=65532 /srv/mirror
COPY --from=build-mirror /opt/oms /opt/oms
COPY --from=jars /jars /opt/jars
COPY deploy/healthcheck.py /opt/healthcheck.py
ENV PATH=/opt/oms/bin:${PATH} PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp SPARK_LOCAL_DIRS=/tmp OMS_MIRROR_JARS=/opt/jars
USER 65532:65532
WORKDIR /tmp
EXPOSE 9091
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["/opt/oms/bin/python", "-I", "/opt/healthcheck.py", "9091"]
ENTRYPOINT ["/opt/oms/bin/oms-bridge"]
CMD ["mirror", "run", "--out=/srv/mirror", "--metrics=0.0.0.0:9091"]
ARG VERSION=unreleased
LABEL org.opencontainers.image.title="openmessaging-bridge-mirror" \
      org.opencontainers.image.description="The Parquet mirror of openmessaging-bridge" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"


FROM base AS bridge
COPY --from=build /opt/oms /opt/oms
COPY deploy/healthcheck.py /opt/healthcheck.py
# A file, not variables: the file and the variables that a user gives take precedence.
COPY deploy/bridge.yaml /etc/oms-bridge/bridge.yaml
ENV PATH=/opt/oms/bin:${PATH} PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp OMS_CONFIG=/etc/oms-bridge/bridge.yaml
USER 65532:65532
WORKDIR /tmp
EXPOSE 8080 9090
HEALTHCHECK --interval=5s --timeout=5s --start-period=30s --retries=3 \
    CMD ["/opt/oms/bin/python", "-I", "/opt/healthcheck.py", "9090"]
ENTRYPOINT ["/opt/oms/bin/oms-bridge"]
CMD ["serve"]
ARG VERSION=unreleased
LABEL org.opencontainers.image.title="openmessaging-bridge" \
      org.opencontainers.image.description="The OpenMessaging HTTP binding in front of Kafka, RabbitMQ or memory" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
