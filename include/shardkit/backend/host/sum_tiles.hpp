// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

#include <shardkit/backend/host/summands.hpp>

namespace shardkit::host::detail {

/// What sums are made in: integers wrap around instead of being undefined.
template <class T, bool = std::is_integral_v<T>>
struct SummandOf {
    using type = T;
};
template <class T>
struct SummandOf<T, true> {
    using type = std::make_unsigned_t<T>;
};

/// Values side by side that the compiler keeps in registers, and adds each to its own.
template <class T>
struct Tile {
#if defined(__AVX__)
    static constexpr std::size_t register_bytes = 32;
#else
    static constexpr std::size_t register_bytes = 16;
#endif
    using Summand = typename SummandOf<T>::type;
    // NOLINTNEXTLINE(modernize-use-using): clang 14 takes the attribute of a dependent type here only
    typedef Summand Register __attribute__((vector_size(register_bytes)));
    static constexpr std::size_t registers = 8;
    static constexpr std::size_t elements = registers * register_bytes / sizeof(T);

    Register at[registers];

    void load(const T* from) noexcept {
        unrolled([&](std::size_t i) { at[i] = read(from, i); });
    }
    void add(const T* from) noexcept {
        unrolled([&](std::size_t i) { at[i] += read(from, i); });
    }
    void store(T* to) const noexcept {
        unrolled([&](std::size_t i) {
            std::memcpy(reinterpret_cast<std::byte*>(to) + i * register_bytes, &at[i], register_bytes);
        });
    }
    /// Past the caches, as stream_register().
    void stream(T* to) const noexcept {
        unrolled([&](std::size_t i) {
            stream_register<register_bytes>(&at[i], reinterpret_cast<std::byte*>(to) + i * register_bytes);
        });
    }

  private:
    /// Not a loop: compilers unroll those at -O3 only, and an array that a loop walks over lies in memory.
    template <class Step>
    static void unrolled(Step step) noexcept {
        [&]<std::size_t... I>(std::index_sequence<I...>) { (step(I), ...); }
        (std::make_index_sequence<registers>());
    }
    static Register read(const T* from, std::size_t i) noexcept {
        Register values;
        std::memcpy(&values, reinterpret_cast<const std::byte*>(from) + i * register_bytes, register_bytes);
        return values;
    }
};

/// Adds up whole tiles in rank order, from element `begin` on, all streams side by side: block after block takes up
/// to twice as long, as the processor then does not read and write at the same time. Returns the end of what is done,
/// less than a tile before `count`.
/// @pre results that are streamed begin a cache line at `begin`
template <class T>
std::size_t sum_tiles(const Summands<T, T>& summands, std::size_t begin, std::size_t count) noexcept {
    using Tile = Tile<T>;
    const std::size_t end = count - (count - begin) % Tile::elements;
    for (std::size_t offset = begin; offset < end; offset += Tile::elements) {
        Tile sums;
        sums.load(summands.input(0) + offset);
        for (std::size_t q = 1; q < summands.ranks; ++q) { sums.add(summands.input(q) + offset); }
        for (std::size_t i = 0; i < summands.results; ++i) {
            const Result<T> result = summands.result(i);
            if (result.store == Store::streaming) {
                sums.stream(result.data + offset);
            } else {
                sums.store(result.data + offset);
            }
        }
    }
    return end;
}

}  // namespace shardkit::host::detail
