// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <type_traits>

#include <shardkit/backend/cub/accumulate_pass.hpp>
#include <shardkit/backend/cub/convert_pass.hpp>
#include <shardkit/backend/cub/fill_pass.hpp>
#include <shardkit/backend/cub/require_size.hpp>
#include <shardkit/backend/cub/scale_pass.hpp>
#include <shardkit/core/element.hpp>

// `launch(count, work, kernel)` runs work(i) for each i in [0, count), in any order: DeviceLaunch, or a test's loop.

namespace shardkit::gpu {

/// Sets every element to `value`, in one launch.
/// @post every element of `to` is `value`
template <Element T, class Launch>
void fill(const Launch& launch, std::span<T> to, std::type_identity_t<T> value) {
    using Pass = FillPass<T>;
    const Pass pass{to.data(), value, tile<Pass::lanes>(to.size(), to.data())};
    launch(pass.tiling.vectors(), pass, "fill");
}

/// to[i] = from[i], rounded once, in one launch.
/// @post to[i] is from[i] rounded to nearest, ties to even (from fp64 to a 16-bit type by way of fp32)
/// @pre the spans do not overlap
template <FloatingElement From, FloatingElement To, class Launch>
void convert(const Launch& launch, std::span<const From> from, std::span<To> to) {
    using Pass = ConvertPass<From, To>;
    require_size("convert", "to", to.size(), from.size());
    const Pass pass{from.data(), to.data(), tile<Pass::lanes>(to.size(), from.data(), to.data())};
    launch(pass.tiling.vectors(), pass, "convert");
}

/// total[i] += addend[i] in the arithmetic type, in one launch.
/// @post total[i] is the old total[i] + addend[i], added in Arithmetic<Sum> and rounded once
template <FloatingElement Addend, FloatingElement Sum, class Launch>
void accumulate(const Launch& launch, std::span<const Addend> addend, std::span<Sum> total) {
    using Pass = AccumulatePass<Addend, Sum>;
    require_size("accumulate", "total", total.size(), addend.size());
    const Pass pass{addend.data(), total.data(), tile<Pass::lanes>(total.size(), addend.data(), total.data())};
    launch(pass.tiling.vectors(), pass, "accumulate");
}

/// Multiplies every element by *factor, in one launch.
/// @post to[i] is the old to[i] * *factor, multiplied in Arithmetic<T> and rounded once
template <FloatingElement T, class Launch>
void scale(const Launch& launch, std::span<T> to, const double* factor) {
    using Pass = ScalePass<T>;
    const Pass pass{to.data(), factor, tile<Pass::lanes>(to.size(), to.data())};
    launch(pass.tiling.vectors(), pass, "scale");
}

}  // namespace shardkit::gpu
