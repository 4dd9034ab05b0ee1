// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>

#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/core/divided.hpp>
#include <shardkit/memory/host_buffer.hpp>
#include <shardkit/verbs/communicator.hpp>

// Works by index, and by element, in one launch.

namespace shardkit::detail {

/// Calls f(begin, end) for each maximal run of [first, last) in which taken(i) is true.
template <class Taken, class F>
void for_each_run(std::size_t first, std::size_t last, const Taken& taken, const F& f) {
    for (std::size_t begin = first; begin < last;) {
        std::size_t end = begin;
        while (end < last && taken(end)) { ++end; }
        if (end > begin) { f(begin, end); }
        begin = end + 1;
    }
}

/// Wraps a work by index into one work that loops over all indices.
template <class Work>
struct EachIndex {
    std::uint64_t n;
    Work work;

    constexpr void operator()() const {
        for (std::uint64_t i = 0; i < n; ++i) { work(i); }
    }
};

/// Runs work(i) for every i below n, in any order, in one launch. A work that knows how to run whole, as
/// work(), does so on the host.
template <class Work>
void run_each(const Stream& stream, std::uint64_t n, const Work& work) {
    if constexpr (std::invocable<const Work&>) {
        if (host_reads(stream)) { return stream.submit(work); }  // no kernel of a device's is made of it
    }
    host::AnyKernels::for_each_index(stream, n, work);
}

/// Runs `first`, and then work(i) for every i below n, in one launch on a device.
template <class First, class Work>
void run_first(const Stream& stream, const First& first, std::uint64_t n, const Work& work) {
    host::AnyKernels::run_first(stream, first, n, work);
}

/// Wraps a work by element of a matrix into one by index, which runs whole from tile to tile, whose rows and columns
/// stay in the nearest cache.
template <class Work>
struct EachElement {
    static constexpr std::size_t side = 16;  // of a tile
    std::size_t rows, columns;
    Work work;

    constexpr void operator()(std::uint64_t i) const {
        const auto [row, column] = divided(i, columns);
        work(row, column);
    }
    constexpr void operator()() const {
        for (std::size_t top = 0; top < rows; top += side) {
            const std::size_t bottom = rows - top < side ? rows : top + side;
            for (std::size_t left = 0; left < columns; left += side) {
                const std::size_t right = columns - left < side ? columns : left + side;
                for (std::size_t row = top; row < bottom; ++row) {
                    for (std::size_t column = left; column < right; ++column) { work(row, column); }
                }
            }
        }
    }
};

/// Runs work(row, column) for every element of a matrix, in any order, in one launch.
template <class Work>
void run_each_element(const Stream& stream, std::size_t rows, std::size_t columns, const Work& work) {
    run_each(stream, std::uint64_t{rows} * columns, EachElement<Work>{rows, columns, work});
}

}  // namespace shardkit::detail
