// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstddef>
#include <sstream>

#include <doctest/doctest.h>

#include <shardkit/core/element.hpp>
#include <shardkit/layout/flat_layout.hpp>

#include "laid_out.hpp"
#include "layout_oracle.hpp"

namespace flat_layout_test {

namespace {

using namespace shardkit;
using layout_oracle::Map;
using layout_oracle::Owner;

template <std::size_t N>
using Numels = std::array<std::size_t, N>;

/// Every post-condition of one layout against its element map; the name of the first that fails, or null.
template <std::size_t N>
const char* broken(const Numels<N>& numels, std::size_t shards, std::size_t alignment, Packing packing) {
    const LaidOut<N> layout(numels, shards, alignment, packing);
    const Map map(numels, shards, alignment, packing);

    if (layout.total() != map.total) { return "total"; }
    if (layout.buffer_numel() != map.elements.size()) { return "buffer_numel"; }
    if (layout.shards() != shards || layout.shard_numel() != map.shard) { return "shard_numel"; }
    if (layout.shard_numel() % alignment != 0) { return "shards are aligned"; }

    std::size_t end = 0;
    for (std::size_t p = 0; p < N; ++p) {
        const IndexRange range = layout.range(p);
        if (range.size() != numels[p]) { return "a range has its parameter's elements"; }
        if (range.begin < end || range.end > layout.buffer_numel()) { return "disjoint, in order, inside"; }
        if (range.begin - end >= alignment) { return "less than alignment of padding"; }
        if (packing == Packing::aligned ? range.begin % alignment != 0 : range.begin != end) { return "packing"; }
        for (std::size_t x = range.begin; x < range.end; ++x) {
            if (map.elements[x] != Owner{p, x - range.begin}) { return "ownership"; }
        }
        end = range.end;
    }
    std::size_t owned = 0;
    for (const Owner& owner : map.elements) { owned += owner.parameter != Owner::padding ? 1U : 0U; }
    std::size_t expected = 0;
    for (const std::size_t numel : numels) { expected += numel; }
    if (owned != expected) { return "oracle"; }

    std::size_t at = 0;
    for (std::size_t r = 0; r < shards; ++r) {
        const IndexRange shard = layout.shard(r);
        if (shard.begin != at || shard.begin != std::min(r * map.shard, map.elements.size())) {
            return "shard r begins at r * shard_numel";
        }
        if (packing != Packing::exact && shard.size() != map.shard) { return "equal shards"; }
        if (shard.size() > map.shard) { return "no shard is longer"; }
        at = shard.end;
    }
    return at == map.elements.size() ? nullptr : "shards cover the buffer";
}

template <std::size_t N>
void check(const Numels<N>& numels) {
    for (std::size_t shards = 1; shards <= 6; ++shards) {
        for (const std::size_t alignment : {1U, 2U, 4U, 8U}) {
            for (const Packing packing : {Packing::aligned, Packing::packed, Packing::exact}) {
                if (const char* rule = broken(numels, shards, alignment, packing)) {
                    std::ostringstream text;
                    for (const std::size_t numel : numels) { text << numel << ' '; }
                    FAIL_CHECK("numels " << text.str() << "shards " << shards << " alignment " << alignment
                                         << " packing " << static_cast<int>(packing) << ": " << rule);
                }
            }
        }
    }
}

/// Offsets of a layout in a constant expression.
constexpr LaidOut<3> literal({5, 0, 9}, 3, 4);
static_assert(literal.range(0).begin == 0 && literal.range(1).begin == 8 && literal.range(2).begin == 8);
static_assert(literal.total() == 17 && literal.shard_numel() == 8 && literal.buffer_numel() == 24);
static_assert(literal.shard(0) == IndexRange{0, 8} && literal.shard(2) == IndexRange{16, 24});
constexpr LaidOut<2> packed({5, 6}, 2, 4, Packing::packed);
static_assert(packed.range(1) == IndexRange{5, 11} && packed.buffer_numel() == 16);
constexpr LaidOut<2> exact({5, 6}, 2, 4, Packing::exact);
static_assert(exact.buffer_numel() == 11 && exact.shard(0) == IndexRange{0, 8} &&
              exact.shard(1) == IndexRange{8, 11});

}  // namespace

TEST_CASE("FlatLayout: one parameter, every size up to 40") {
    for (std::size_t a = 0; a <= 40; ++a) { check<1>({a}); }
}

TEST_CASE("FlatLayout: two parameters, every pair of sizes up to 13") {
    for (std::size_t a = 0; a <= 13; ++a) {
        for (std::size_t b = 0; b <= 13; ++b) { check<2>({a, b}); }
    }
}

TEST_CASE("FlatLayout: three parameters, every triple of sizes up to 12") {
    for (std::size_t a = 0; a <= 12; ++a) {
        for (std::size_t b = 0; b <= 12; ++b) {
            for (std::size_t c = 0; c <= 12; ++c) { check<3>({a, b, c}); }
        }
    }
}

TEST_CASE("FlatLayout: many shards of few elements are partly empty of parameters") {
    const LaidOut<1> layout({3}, 100, 2);
    CHECK(layout.shard_numel() == 2);
    CHECK(layout.buffer_numel() == 200);
    CHECK(intersect(layout.range(0), layout.shard(1)) == IndexRange{2, 3});
    CHECK(intersect(layout.range(0), layout.shard(2)).empty());
}

TEST_CASE("alignment_for: a multiple of it starts on a 128-byte boundary in every buffer") {
    for (const std::size_t narrowest : {1U, 2U, 4U, 8U}) {
        const std::size_t alignment = layout::alignment_for(narrowest);
        for (std::size_t size = narrowest; size <= 8; size *= 2) { CHECK(alignment * size % 128 == 0); }
        CHECK((alignment - 1) * narrowest % 128 != 0);
    }
    static_assert(layout::alignment_for(sizeof(bf16)) == 64 && layout::alignment_for(4) == 32 &&
                  layout::alignment_for(8) == 16);
}

}  // namespace flat_layout_test
