// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>

#include <shardkit/backend/host/any_kernels.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/verbs/communicator.hpp>

#include "../model/convert.hpp"
#include "place.hpp"

namespace train_gpt {

/// Launches in the order of a rank's compute stream.
struct EngineLaunch {
    using Kernels = shardkit::host::AnyKernels;

    shardkit::Stream stream;

    template <class Work>
    void operator()(std::size_t n, const Work& work) const {
        Kernels::for_each_index(stream, n, work);
    }
    template <class A>
    void operator()(std::size_t n, const Fill<A>& work) const {
        Kernels::fill(stream, std::span<A>(work.to, n), work.value);
    }
    template <shardkit::FloatingElement From, shardkit::FloatingElement To>
    void operator()(std::size_t n, const Convert<From, To>& work) const {
        Kernels::convert(stream, std::span<const From>(work.from, n), std::span<To>(work.to, n));
    }
};
using DevicePlace = DevicePlaceOf<EngineLaunch>;

}  // namespace train_gpt
