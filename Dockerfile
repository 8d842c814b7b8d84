# Built in one stage, run in another: no compiler, no source, no package index at run time.
FROM python:3.13-slim-bookworm AS build
COPY . /source
RUN sh /source/deploy/build.sh /source /opt/treadle

FROM python:3.13-slim-bookworm
# Not root: the sandbox of agents is then made by an ordinary user, as it should be.
RUN groupadd --gid 10001 treadle \
 && useradd --uid 10001 --gid 10001 --no-create-home --home-dir /var/lib/treadle treadle \
 && install --directory --owner=10001 --group=10001 --mode=0755 /var/lib/treadle
COPY --from=build /opt/treadle /opt/treadle
ENV PATH=/opt/treadle/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONUNBUFFERED=1 \
    TREADLE_DATA_DIR=/var/lib/treadle
USER 10001:10001
WORKDIR /var/lib/treadle
VOLUME /var/lib/treadle
EXPOSE 8700
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
  CMD ["python3", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8700/healthz', timeout=2)"]
# Exec form: signals reach the program, which drains before it goes.
ENTRYPOINT ["treadle"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8700"]
