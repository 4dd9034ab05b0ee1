// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include <shardkit/backend/host/tensor_table.hpp>

#include "each_precision.hpp"
#include "machine.hpp"
#include "step_data.hpp"

namespace shardkit::test {

template <class T>
std::vector<T> counted(std::size_t count, std::size_t from) {
    std::vector<T> values;
    for (std::size_t i = 0; i < count; ++i) {
        values.push_back(static_cast<T>(static_cast<Arithmetic<T>>((from + i) % 251)));
    }
    return values;
}

/// Tensors of all lengths, each at another offset from an aligned address when `unlike`.
template <class T, class M>
void check_pack_of(M& machine, std::size_t size, const std::vector<rules::UpdateRange>& places, bool unlike,
                   std::size_t offset) {
    machine.clear();
    std::vector<T> expected = counted<T>(size, 7);
    const auto flat = array(machine, expected, offset);
    std::vector<Array<T, M>> tensors;
    std::vector<engine::TensorPiece<T>> pieces;
    for (const rules::UpdateRange& place : places) {
        const std::size_t count = place.end - place.begin;
        const std::size_t like = (place.begin + offset) % 16;
        tensors.push_back(array(machine, counted<T>(count, 100 + place.begin), unlike ? tensors.size() % 5 : like));
        pieces.insert(pieces.begin(), {place.begin, place.end, tensors.back().data()});  // in any order
    }
    const auto table = array(machine, engine::tensor_table(std::span<const engine::TensorPiece<T>>(pieces), size));
    M::Kernels::template copy_tensors<engine::TensorCopy::pack>(machine.stream(), table.view(), flat.span());
    for (const rules::UpdateRange& place : places) {
        for (std::size_t i = place.begin; i < place.end; ++i) {
            expected[i] = static_cast<T>(static_cast<Arithmetic<T>>((100 + i) % 251));
        }
    }
    CHECK(same_bits(flat.values(), expected));

    // Other numbers everywhere than those that were packed, padding included.
    const std::vector<T> returned = counted<T>(size, 50);
    M::Kernels::copy_in(machine.stream(), std::span<const T>(returned), flat.span());
    M::Kernels::template copy_tensors<engine::TensorCopy::unpack>(machine.stream(), table.view(), flat.span());
    CHECK(same_bits(flat.values(), returned));
    for (std::size_t t = 0; t < tensors.size(); ++t) {
        CHECK(same_bits(tensors[t].values(), counted<T>(places[t].end - places[t].begin, 50 + places[t].begin)));
    }
}

template <class T, class M>
void check_pack_type(M& machine) {
    for (const std::size_t size : sizes()) {
        for (const auto& places : runs_of(size)) {
            check_pack_of<T>(machine, size, places, false, 0);
            check_pack_of<T>(machine, size, places, true, 0);
            check_pack_of<T>(machine, size, places, false, 3);
        }
    }
}

inline void check_tensor_table() {
    using Piece = engine::TensorPiece<float>;
    float tensor = 0;
    const auto table = [](std::vector<Piece> pieces) {
        return engine::tensor_table(std::span<const Piece>(pieces), 10, {"user.cpp", 7});
    };
    CHECK(table({{4, 6, &tensor}, {2, 2, nullptr}, {0, 3, &tensor}}).size() == 2);
    CHECK(table({{4, 6, &tensor}, {0, 3, &tensor}})[0].end == 3);
    CHECK_THROWS_WITH_AS(table({{4, 11, &tensor}}),
                         "tensor_table: piece [4, 11), expected a range inside [0, 10) (user.cpp:7)",
                         std::invalid_argument);
    CHECK_THROWS_WITH_AS(table({{4, 3, &tensor}}),
                         "tensor_table: piece [4, 3), expected a range inside [0, 10) (user.cpp:7)",
                         std::invalid_argument);
    CHECK_THROWS_WITH_AS(table({{4, 6, nullptr}}),
                         "tensor_table: piece [4, 6) has no tensor, expected memory of the engine (user.cpp:7)",
                         std::invalid_argument);
    CHECK_THROWS_WITH_AS(table({{4, 6, &tensor}, {0, 5, &tensor}}),
                         "tensor_table: pieces [0, 5) and [4, 6) overlap, expected disjoint pieces (user.cpp:7)",
                         std::invalid_argument);
}

template <class M>
void check_pack(M& machine) {
    SUBCASE("every size and place") {
        check_pack_type<double>(machine);
        check_pack_type<float>(machine);
        check_pack_type<bf16>(machine);
        check_pack_type<std::uint8_t>(machine);
    }
    SUBCASE("the table") { check_tensor_table(); }
}

}  // namespace shardkit::test
