"""AnnData: cells with labels in part; answers come back as columns of obs. The example was written by anndata 0.12."""

from __future__ import annotations

import shutil
from pathlib import Path

import h5py
import numpy as np
import pytest

from manyway import InputError
from manyway.files.formats.anndata import AnnData
from manyway.files.opening import read_table

EXAMPLE = AnnData().example_path


@pytest.fixture
def cells(tmp_path) -> Path:
    return Path(shutil.copy(EXAMPLE, tmp_path / "cells.h5ad"))


def test_cells_are_a_table():
    table = read_table(EXAMPLE)
    assert list(table.names) == ["item", "batch", "cell_type", "X_pca"]
    items, _, labels = table.values(range(3))
    assert items[:2] == ["AAAC-0", "AAAC-1"]
    assert labels[:6] == ["B cell", "B cell", "B cell", None, None, None]
    assert table.features([3]).shape == (18, 4)
    assert "obsm['X_pca'] of cells.h5ad (4 numbers per cell) is read as the features" in table.notes


def test_answers_come_back_as_columns_of_obs(label, tmp_path):
    label(EXAMPLE, "--label-column", "cell_type", "-o", "answers.h5ad")
    table = read_table(tmp_path / "answers.h5ad")
    found = dict(zip(table.names, table.values(range(len(table.names) - 1)), strict=False))
    expected = [*[None] * 3, *["B cell"] * 3, *[None] * 3, *["T cell"] * 3, *[None] * 3, *["monocyte"] * 3]
    assert found["manyway_label"] == expected  # cells that were labelled are the examples
    with h5py.File(tmp_path / "answers.h5ad") as file, h5py.File(EXAMPLE) as before:
        p = file["obs/manyway_probability"][...]
        assert np.isnan(p).tolist() == [name is None for name in expected]
        assert np.nanmin(p) > 0.5
        assert file["obs"].attrs["column-order"].tolist()[-2:] == ["manyway_label", "manyway_probability"]
        for name in ("X", "obsm/X_umap", "obs/n_genes"):
            assert np.array_equal(file[name][...], before[name][...])
        assert file["uns/note"][()] == before["uns/note"][()]
    label("answers.h5ad", "--label-column", "cell_type", "-o", "again.h5ad")
    again = read_table(tmp_path / "again.h5ad")
    assert list(again.names) == list(table.names)


def test_numbered_clusters_are_no_features(label, cells):
    with h5py.File(cells, "r+") as file:
        names = np.array([str(row % 7) for row in range(18)], dtype=object)
        file["obs"].create_dataset("louvain", data=names, dtype=h5py.string_dtype())
    assert "in 9 items" in label(cells, "--label-column", "cell_type", "-o", "answers.h5ad")


def test_anndata_reads_the_answers(label, tmp_path):
    """Runs where anndata is installed; it needs another pandas than the tests."""
    anndata = pytest.importorskip("anndata")
    label(EXAMPLE, "--label-column", "cell_type", "-o", "answers.h5ad")
    before, after = (anndata.read_h5ad(path) for path in (EXAMPLE, tmp_path / "answers.h5ad"))
    assert list(after.obs.columns) == [*before.obs.columns, "manyway_label", "manyway_probability"]
    assert after.obs["manyway_label"].dtype == "category"
    assert after.obs["manyway_label"].isna().sum() == 9
    assert (after.obs["cell_type"].isna() == after.obs["manyway_label"].notna()).all()
    assert after.uns["note"] == "kept"
    assert (after.X == before.X).all()


def test_without_a_pca_the_widest_embedding_is_read(cells):
    with h5py.File(cells, "r+") as file:
        file["obsm"].move("X_pca", "X_scvi")
    assert read_table(cells).names[-1] == "X_scvi"


def damage(change):
    def made(path: Path) -> None:
        with h5py.File(path, "r+") as file:
            change(file)

    return made


def outside(file: h5py.File) -> None:
    del file["obsm/X_pca"], file["obsm/X_umap"]
    file["obsm/X_pca"] = h5py.ExternalLink("other.h5", "/secret")


def rename(file: h5py.File) -> None:
    names = file["obs/_index"][...]
    names[1] = names[0]
    file["obs/_index"][...] = names


def shorten_pca(file: h5py.File) -> None:
    first = file["obsm/X_pca"][:5]
    del file["obsm/X_pca"]
    file["obsm/X_pca"] = first


def bomb(file: h5py.File) -> None:
    del file["obsm/X_pca"]
    file["obsm"].create_dataset("X_pca", shape=(18, 10**8), dtype="f8", compression="gzip", chunks=(1, 1000))


BAD = {
    "no obs": (damage(lambda file: file.pop("obs")), "no group 'obs'"),
    "no embedding": (
        damage(lambda file: [file["obsm"].pop(name) for name in list(file["obsm"])]),
        "no embedding in obsm",
    ),
    "a link to another file": (damage(outside), "no embedding in obsm"),
    "names twice": (damage(rename), "two cells named 'AAAC-0'"),
    "too few rows": (damage(shorten_pca), "18 cells, and 5 in obsm"),
    "a bomb": (damage(bomb), "unpacks to far more"),
    "no file of HDF5": (lambda path: path.write_text("cells"), "cannot be read as an .h5ad file"),
}


@pytest.mark.parametrize(("change", "said"), BAD.values(), ids=BAD)
def test_what_cannot_be_read_is_one_sentence(change, said, cells):
    change(cells)
    with pytest.raises(InputError, match=said):
        read_table(cells)
