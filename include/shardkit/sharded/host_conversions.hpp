// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <shardkit/core/codes.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/policy/precision.hpp>

namespace shardkit::detail {

/// What an update of a group does in host memory with elements that are not of the arithmetic type of its masters:
/// converts some of them, in the caller's thread. Null: they are of that type, or a group has none.
struct HostConversions {
    using Convert = void (*)(const void* from, void* to, std::size_t count);
    /// Of what an update changes.
    struct Updated {
        ElementType arithmetic;
        bool half;  ///< bf16, which updates with full states also read and write as they are
        Convert load;
        Convert store;
        /// Stores stochastically; `element`: the number of the first one.
        void (*round)(const void* from, void* to, std::size_t count, std::uint64_t seed, std::uint64_t step,
                      std::uint64_t element);
    };

    Updated masters;
    Updated stored;  ///< what is gathered and no codes, of a group without masters
    Convert load_sums;
    Convert gather;       ///< masters, as they are stored
    bool gathers_halves;  ///< of fp32 as bf16, which updates with other states also do
    /// Begins the codes of masters, of which `begin` is the first and begins a block, and which are `count` in all.
    void (*begin_codes)(const void* masters, std::size_t count, void* codes, float* scales, std::size_t begin,
                        std::size_t end);
    void (*join)(const void* upper, const std::uint16_t* lower, void* to, std::size_t count);
    void (*split)(const void* from, void* upper, std::uint16_t* lower, std::size_t count);
};

/// Those of a precision; `Loops` has them for two types, for the target that the file is compiled for.
template <class Loops, class Precision>
constexpr HostConversions host_conversions() noexcept {
    using Gather = typename Precision::Gather;
    using Reduction = typename Precision::Reduction;
    using Master = typename Precision::Master;
    const auto convert = []<class From, class To>(std::type_identity<From>, std::type_identity<To>) {
        HostConversions::Convert made = nullptr;
        if constexpr (!std::is_same_v<From, To>) { made = &Loops::template convert<From, To>; }
        return made;
    };
    const auto updated = [&]<class T>(std::type_identity<T> type) {
        constexpr std::type_identity<Arithmetic<T>> in_arithmetic{};
        HostConversions::Updated made{element_type_of<Arithmetic<T>>, std::is_same_v<T, bf16>,
                                      convert(type, in_arithmetic), convert(in_arithmetic, type), nullptr};
        if constexpr (sizeof(T) == 2 && std::is_same_v<Arithmetic<T>, float>) {
            made.round = &Loops::template round<T>;
        }
        return made;
    };
    HostConversions made{};
    if constexpr (!is_opaque<Gather>) {  // which are never updated
        made.load_sums = convert(std::type_identity<Reduction>{}, std::type_identity<Arithmetic<Master>>{});
        made.masters = updated(std::type_identity<Master>{});
        if constexpr (Precision::gathers_codes) {
            made.begin_codes = &Loops::template begin_codes<Gather, Master>;
        } else {
            made.gather = convert(std::type_identity<Master>{}, std::type_identity<Gather>{});
            made.gathers_halves = std::is_same_v<Master, float> && std::is_same_v<Gather, bf16>;
            made.stored = updated(std::type_identity<Gather>{});
        }
        if constexpr (can_split_master<Precision>) {
            made.join = &Loops::template join<Gather>;
            made.split = &Loops::template split<Gather>;
        }
    }
    return made;
}

}  // namespace shardkit::detail
