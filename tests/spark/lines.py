"""A folder whose files are read as a stream: a file is a batch, its lines are rows."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession


class Lines:
    """Numbers, each once."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder / "lines"
        self._folder.mkdir(exist_ok=True)
        self._checkpoints = folder
        self._last = max((int(file.stem) for file in self._folder.iterdir()), default=0)

    def add(self, number: int) -> None:
        """One more file, with numbers that none has had."""
        numbers = range(self._last, self._last + number)
        self._last += number
        draft = self._checkpoints / "draft"
        draft.write_text("".join(f"{n}\n" for n in numbers))
        draft.rename(self._folder / f"{self._last:06}.txt")

    def run(
        self,
        url: str,
        form: str = "penstock",
        checkpoint: str = "a",
        partitions: int = 2,
        tube: str = "jobs",
        **options: str,
    ) -> None:
        """Write all there is, and come back."""
        frame = self._spark.readStream.option("maxFilesPerTrigger", 1).text(str(self._folder))
        frame = frame.withColumnRenamed("value", "data").repartition(partitions)
        query = (
            frame.writeStream.format(form)
            .options(url=url, tube=tube, checkpointLocation=str(self._checkpoints / checkpoint), **options)
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
