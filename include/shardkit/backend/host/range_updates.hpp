// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <shardkit/backend/host/device_kernels.hpp>
#include <shardkit/backend/host/kernels.hpp>
#include <shardkit/backend/host/target.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/core/codes.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/core/split_float.hpp>
#include <shardkit/core/stochastic_rounding.hpp>
#include <shardkit/kernels/update.hpp>

namespace shardkit::host::detail SHARDKIT_HOST_TARGET {

/// An optimizer's update of a range of elements, in a name of the target that the file is compiled for.
struct RangeUpdates {
    template <class Update, class Elements>
    static void update(const Update& update, const Elements& elements) {
        shardkit::detail::HostKernels::update(update, elements);
    }
    // Those of a HostConversions.
    template <class From, class To>
    static void convert(const void* from, void* to, std::size_t count) {
        shardkit::detail::HostKernels::convert(shardkit::detail::InlineStream{},
                                               std::span(static_cast<const From*>(from), count),
                                               std::span(static_cast<To*>(to), count));
    }
    template <class T>
    static void round(const void* from, void* to, std::size_t count, std::uint64_t seed, std::uint64_t step,
                      std::uint64_t element) {
        std::array<std::uint32_t, 4> draws{};
        for (std::size_t i = 0; i < count; ++i, ++element) {
            if (i == 0 || element % 8 == 0) { draws = shardkit::detail::draws_of_block(seed, step, element / 8); }
            static_cast<T*>(to)[i] = rules::round_stochastically<T>(static_cast<const float*>(from)[i],
                                                                    shardkit::detail::draw_of(draws, element % 8));
        }
    }
    template <class Gather, class Master>
    static void begin_codes(const void* masters, std::size_t count, void* codes, float* scales, std::size_t begin,
                            std::size_t end) {
        const shardkit::detail::BeginCodes<Gather, Master> each{static_cast<const Master*>(masters), count,
                                                                static_cast<Gather*>(codes), scales};
        for (std::size_t at = begin; at < end; at += shardkit::detail::coded_together) {
            each(at / shardkit::detail::coded_together);
        }
    }
    template <class T>
    static void join(const void* upper, const std::uint16_t* lower, void* to, std::size_t count) {
        for_each_index(count,
                       shardkit::detail::JoinWork<T>{static_cast<const T*>(upper), lower, static_cast<float*>(to)});
    }
    template <class T>
    static void split(const void* from, void* upper, std::uint16_t* lower, std::size_t count) {
        for_each_index(
            count, shardkit::detail::SplitWork<T>{static_cast<const float*>(from), static_cast<T*>(upper), lower});
    }
    /// Gives a device's stream a kernel.
    template <class Kernel>
    static void give(const Stream& stream, const Kernel& kernel) {
        shardkit::detail::give_to_device(stream, kernel);
    }
    /// Gives it a work for each index below n, behind `first` unless that is null.
    template <class First, class Work>
    static void give_works(const Stream& stream, const First* first, std::uint64_t n, const Work& work) {
        if (first != nullptr) {
            give(stream, engine::RunFirst<First, Work>{*first, n, work});
        } else {
            give(stream, engine::ForEachIndex<Work>{n, work});
        }
    }
};

}  // namespace shardkit::host::detail SHARDKIT_HOST_TARGET
