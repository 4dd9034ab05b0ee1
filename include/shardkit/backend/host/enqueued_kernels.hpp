// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <type_traits>

#include <shardkit/backend/host/kernels.hpp>
#include <shardkit/comm/stream.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/optim/norm_partial.hpp>

namespace shardkit::host {

/// HostKernels that run when a stream gets to them: `stream.submit(work)` decides when and where.
/// Order:   stream-ordered, except norm_partial, whose result the host reads: it synchronizes the stream first.
template <class S>
struct EnqueuedKernels {
    template <Element T>
    static void fill(const S& stream, std::span<T> to, std::type_identity_t<T> value) {
        stream.submit([=] { HostKernels::fill(InlineStream{}, to, value); });
    }
    template <FloatingElement From, FloatingElement To>
    static void convert(const S& stream, std::span<const From> from, std::span<To> to) {
        stream.submit([=] { HostKernels::convert(InlineStream{}, from, to); });
    }
    template <FloatingElement Addend, FloatingElement Sum>
    static void accumulate(const S& stream, std::span<const Addend> addend, std::span<Sum> total) {
        stream.submit([=] { HostKernels::accumulate(InlineStream{}, addend, total); });
    }
    template <FloatingElement T>
    static void norm_partial(const S& stream, std::span<const T> gradient, double scale, NormPartial& into) {
        stream.synchronize();
        HostKernels::norm_partial(InlineStream{}, gradient, scale, into);
    }
    template <class Update, class Spans>
    static void adamw(const S& stream, const Update& update, const Spans& spans) {
        stream.submit([=] { HostKernels::adamw(InlineStream{}, update, spans); });
    }
    template <class Update, class Spans>
    static void sgd(const S& stream, const Update& update, const Spans& spans) {
        stream.submit([=] { HostKernels::sgd(InlineStream{}, update, spans); });
    }
};

}  // namespace shardkit::host
