// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

namespace shardkit::host {

namespace detail {

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

}  // namespace detail

/// More inputs or results than this are not summed by tiles.
inline constexpr std::size_t most_tiled = 64;

/// Sums whole tiles of `ranks` inputs in rank order and writes them to `results` places, all streams side by side:
/// where the data lies in caches that takes little more than half the time of block after block.
/// Returns the elements done: none, or all but less than a tile. Otherwise as reduce_in_rank_order().
template <class T, class InputOf, class ResultOf>
std::size_t sum_tiles(std::size_t ranks, std::size_t count, InputOf input_of, std::size_t results,
                      ResultOf result_of) noexcept {
    using Tile = detail::Tile<T>;
    if (count < Tile::elements || ranks > most_tiled || results > most_tiled) { return 0; }
    const T* inputs[most_tiled];
    T* places[most_tiled];
    for (std::size_t q = 0; q < ranks; ++q) { inputs[q] = input_of(q); }
    for (std::size_t i = 0; i < results; ++i) { places[i] = result_of(i).data; }
    const std::size_t tiled = count - count % Tile::elements;
    for (std::size_t offset = 0; offset < tiled; offset += Tile::elements) {
        Tile sums;
        sums.load(inputs[0] + offset);
        for (std::size_t q = 1; q < ranks; ++q) { sums.add(inputs[q] + offset); }
        for (std::size_t i = 0; i < results; ++i) { sums.store(places[i] + offset); }
    }
    return tiled;
}

}  // namespace shardkit::host
