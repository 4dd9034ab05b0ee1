// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

#include <shardkit/backend/host/kernels.hpp>
#include <shardkit/comm/stream.hpp>

#include "each_precision.hpp"
#include "machine.hpp"
#include "multiply.hpp"

namespace shardkit::test {

template <class T, class M>
void check_fill(M& machine, T value) {
    for (const std::size_t size : sizes()) {
        for (std::size_t offset = 0; offset < 17; ++offset) {
            machine.clear();
            const auto to = array(machine, std::vector<T>(size), offset);
            M::Kernels::fill(machine.stream(), to.span(), value);
            CHECK(same_bits(to.values(), std::vector<T>(size, value)));
        }
    }
}

/// Random numbers with the hard ones among them.
template <class T>
std::vector<T> hard_elements(std::size_t count, std::uint32_t seed) {
    std::vector<T> elements = random_elements<T>(count, seed);
    constexpr double infinity = std::numeric_limits<double>::infinity();
    const double hard[] = {0,       -0.0,  infinity, -infinity, 65504, 65520,        1e-8,
                           5.96e-8, 1e-40, 3.4e38,   1e39,      0.1,   1.0 + 0x1p-8, 1.0 + 0x1p-11};
    for (std::size_t i = 0; i < std::size(hard) && 3 * i < count; ++i) { elements[3 * i] = rounded<T>(hard[i]); }
    return elements;
}

template <class From, class To, class M>
void check_convert(M& machine) {
    for (const std::size_t size : sizes()) {
        for (const Offsets& at : offsets()) {
            machine.clear();
            const std::vector<From> values = hard_elements<From>(size, 5);
            std::vector<To> expected(size);
            detail::HostKernels::convert(shardkit::detail::InlineStream{}, std::span<const From>(values),
                                         std::span<To>(expected));
            const auto from = array(machine, values, at[0]);
            const auto to = array(machine, std::vector<To>(size), at[1]);
            M::Kernels::convert(machine.stream(), from.view(), to.span());
            CHECK(same_bits(to.values(), expected));
            CHECK(same_bits(from.values(), values));
        }
    }
}

template <class From, class To, class M>
void check_convert_rows(M& machine) {
    constexpr std::size_t rows = 3;
    for (const std::size_t columns : sizes()) {
        for (const Offsets& at : offsets()) {
            for (const std::size_t stride : {columns, columns + 1, columns + 8, 2 * columns + 24}) {
                if (columns == 0) { continue; }
                machine.clear();
                const std::vector<From> values = hard_elements<From>(rows * stride, 5);
                std::vector<To> expected(rows * columns);
                for (std::size_t row = 0; row < rows; ++row) {
                    detail::HostKernels::convert(shardkit::detail::InlineStream{},
                                                 std::span<const From>(values).subspan(row * stride, columns),
                                                 std::span<To>(expected).subspan(row * columns, columns));
                }
                const auto from = array(machine, values, at[0]);
                const auto to = array(machine, std::vector<To>(rows * columns), at[1]);
                M::Kernels::convert_rows(machine.stream(), from.view().data(), stride, to.span(), columns);
                CHECK(same_bits(to.values(), expected));
            }
        }
    }
}

template <class Addend, class Sum, class M>
void check_accumulate(M& machine) {
    for (const std::size_t size : sizes()) {
        for (const Offsets& at : offsets()) {
            machine.clear();
            const std::vector<Addend> values = random_elements<Addend>(size, 6);
            std::vector<Sum> expected = random_elements<Sum>(size, 7);
            const auto addend = array(machine, values, at[0]);
            const auto total = array(machine, expected, at[1]);
            detail::HostKernels::accumulate(shardkit::detail::InlineStream{}, std::span<const Addend>(values),
                                            std::span<Sum>(expected));
            M::Kernels::accumulate(machine.stream(), addend.view(), total.span());
            CHECK(same_bits(total.values(), expected));
        }
    }
}

template <class M>
void check_run(M& machine) {
    machine.clear();
    const auto scalars = array(machine, std::vector<double>{3, 5, 0, 0});
    double* const at = scalars.data();
    M::Kernels::run_once(machine.stream(), Multiply{at, at + 1, at + 2});
    M::Kernels::run_once(machine.stream(), Multiply{at + 2, at + 1, at + 3});
    CHECK(scalars.values() == std::vector<double>{3, 5, 15, 75});
}

template <class M>
void check_elementwise(M& machine) {
    SUBCASE("fill") {
        check_fill<double>(machine, 0.1);
        check_fill<float>(machine, 0.1F);
        check_fill<bf16>(machine, bf16(0.1F));
        check_fill<fp16>(machine, fp16(0.1F));
        check_fill<std::int64_t>(machine, -3);
        check_fill<std::int32_t>(machine, -3);
        check_fill<std::uint64_t>(machine, 3);
        check_fill<std::uint32_t>(machine, 3);
        check_fill<std::uint8_t>(machine, 3);
    }
    SUBCASE("convert") {
        each_floating([&]<class From>(Type<From>) {
            each_floating([&]<class To>(Type<To>) { check_convert<From, To>(machine); });
        });
    }
    SUBCASE("convert rows") {
        check_convert_rows<bf16, float>(machine);
        check_convert_rows<fp16, double>(machine);
        check_convert_rows<float, double>(machine);
    }
    SUBCASE("accumulate") {
        each_floating([&]<class Addend>(Type<Addend>) {
            each_floating([&]<class Sum>(Type<Sum>) { check_accumulate<Addend, Sum>(machine); });
        });
    }
    SUBCASE("run") { check_run(machine); }
}

}  // namespace shardkit::test
