// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include <doctest/doctest.h>

#include <shardkit/layout/boxes.hpp>

namespace boxes_test {

namespace {

using namespace shardkit;

TensorShape shape_of(const std::vector<std::size_t>& extents) {
    TensorShape shape;
    shape.rank = extents.size();
    std::copy(extents.begin(), extents.end(), shape.extents.begin());
    return shape;
}

/// The row-major indices of a box's elements, walked dimension by dimension.
void walk(const TensorShape& shape, const layout::Box& box, std::size_t dimension, std::size_t index,
          std::vector<std::size_t>& indices) {
    if (dimension == shape.rank) {
        indices.push_back(index);
        return;
    }
    for (std::size_t i = 0; i < box.extents[dimension]; ++i) {
        const std::size_t coordinate = box.offsets[dimension] + i;
        REQUIRE(coordinate < shape.extents[dimension]);
        walk(shape, box, dimension + 1, index * shape.extents[dimension] + coordinate, indices);
    }
}

/// Cover, order, disjointness and number of boxes for one range.
void check(const TensorShape& shape, IndexRange range) {
    std::vector<std::size_t> indices;
    std::size_t boxes = 0;
    std::size_t at = range.begin;
    layout::for_each_box(shape, range, [&](const layout::Box& box) {
        ++boxes;
        REQUIRE(box.rank == shape.rank);
        REQUIRE(box.range.begin == at);
        at = box.range.end;
        const std::size_t before = indices.size();
        walk(shape, box, 0, 0, indices);
        REQUIRE(indices.size() - before == box.range.size());
    });
    REQUIRE(at == range.end);
    REQUIRE(indices.size() == range.size());
    for (std::size_t i = 0; i < indices.size(); ++i) {
        if (indices[i] != range.begin + i) { FAIL("element " << i << " of the range is " << indices[i]); }
    }
    REQUIRE(boxes <= (range.empty() ? 0 : std::max<std::size_t>(1, 2 * shape.rank - (shape.rank > 0 ? 1 : 0))));
}

void check_all_ranges(const std::vector<std::size_t>& extents) {
    const TensorShape shape = shape_of(extents);
    for (std::size_t begin = 0; begin <= shape.numel(); ++begin) {
        for (std::size_t end = begin; end <= shape.numel(); ++end) { check(shape, {begin, end}); }
    }
}

void check_all_shapes(std::vector<std::size_t>& extents, std::size_t rank, std::size_t most) {
    if (extents.size() == rank) {
        check_all_ranges(extents);
        return;
    }
    for (std::size_t extent = 1; extent <= most; ++extent) {
        extents.push_back(extent);
        check_all_shapes(extents, rank, most);
        extents.pop_back();
    }
}

std::vector<layout::Box> boxes(const TensorShape& shape, IndexRange range) {
    std::vector<layout::Box> found;
    layout::for_each_box(shape, range, [&](const layout::Box& box) { found.push_back(box); });
    return found;
}

}  // namespace

TEST_CASE("for_each_box: every range of every small tensor of rank 0 to 4") {
    for (const auto& [rank, most] : {std::array<std::size_t, 2>{0, 1}, {1, 12}, {2, 5}, {3, 3}, {4, 2}}) {
        std::vector<std::size_t> extents;
        check_all_shapes(extents, rank, most);
    }
    check_all_ranges({2, 3, 2, 3});
    check_all_ranges({3, 1, 3, 2});
}

TEST_CASE("for_each_box: a ragged first row, whole rows, a ragged last row") {
    const auto found = boxes(shape_of({5, 4}), {3, 18});
    REQUIRE(found.size() == 3);
    CHECK(found[0].offsets[0] == 0);
    CHECK(found[0].offsets[1] == 3);
    CHECK(found[0].extents[0] == 1);
    CHECK(found[0].extents[1] == 1);
    CHECK(found[1].offsets[0] == 1);
    CHECK(found[1].offsets[1] == 0);
    CHECK(found[1].extents[0] == 3);
    CHECK(found[1].extents[1] == 4);
    CHECK(found[2].offsets[0] == 4);
    CHECK(found[2].extents[1] == 2);
    CHECK(found[2].range == IndexRange{16, 18});
}

TEST_CASE("for_each_box: the whole of a tensor is one box, of a scalar too; nothing is none") {
    CHECK(boxes(shape_of({3, 1, 4, 2}), {0, 24}).size() == 1);
    CHECK(boxes(shape_of({}), {0, 1}).size() == 1);
    CHECK(boxes(shape_of({}), {0, 1})[0].range == IndexRange{0, 1});
    CHECK(boxes(shape_of({3, 4}), {5, 5}).empty());
}

TEST_CASE("for_each_box: the bound of 2 rank - 1 is reached") {
    CHECK(boxes(shape_of({3, 3}), {1, 8}).size() == 3);
    CHECK(boxes(shape_of({3, 3, 3}), {1, 26}).size() == 5);
    CHECK(boxes(shape_of({3, 3, 3, 3}), {1, 80}).size() == 7);
}

TEST_CASE("for_each_box: past 2^32") {
    const auto found = boxes(shape_of({5'000'000, 3'000}), {4'500'000'001, 15'000'000'000});
    REQUIRE(found.size() == 2);
    CHECK(found[0].offsets[0] == 1'500'000);
    CHECK(found[0].offsets[1] == 1);
    CHECK(found[0].extents[1] == 2'999);
    CHECK(found[1].offsets[0] == 1'500'001);
    CHECK(found[1].extents[0] == 3'499'999);
    CHECK(found[1].extents[1] == 3'000);
}

static_assert([] {
    TensorShape shape;
    shape.rank = 2;
    shape.extents = {3, 4};
    std::size_t elements = 0;
    layout::for_each_box(shape, {2, 11},
                         [&](const layout::Box& box) { elements += box.extents[0] * box.extents[1]; });
    return elements;
}() == 9);

}  // namespace boxes_test
