// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include <shardkit/core/element.hpp>

#include "../model/gelu.hpp"
#include "../model/matrix.hpp"
#include "../model/place.hpp"
#include "products.hpp"

namespace train_gpt {

/// A row's 32 workers, the threads of a warp: each has every 32nd element.
struct WarpRow {
    static constexpr std::size_t workers = 32;
    std::size_t lane;

    template <class F>
    constexpr void each(std::size_t n, F f) const {
        for (std::size_t i = lane; i < n; i += workers) { f(i); }
        meet();
    }
    template <class F>
    constexpr void once(F f) const {
        meet();
        if (lane == 0) { f(); }
        meet();
    }
    template <class A, class F>
    constexpr A sum(std::size_t n, F f) const {
        A own{0};
        for (std::size_t i = lane; i < n; i += workers) { own += f(i); }
        return over_workers(own, [](A a, A b) { return a + b; });
    }
    template <class A, class F>
    constexpr A total(std::size_t n, F f) const {
        return sum<A>(n, f);
    }
    template <class F>
    constexpr auto max(std::size_t n, F f) const {
        const auto larger = [](auto a, auto b) { return a < b ? b : a; };
        auto own = f(lane < n ? lane : 0);
        for (std::size_t i = lane + workers; i < n; i += workers) { own = larger(own, f(i)); }
        return over_workers(own, larger);
    }

  private:
    static constexpr void meet() {
#ifdef __CUDA_ARCH__
        __syncwarp();
#endif
    }
    template <class A, class F>
    static constexpr A over_workers(A value, [[maybe_unused]] F f) {
#ifdef __CUDA_ARCH__
        for (int distance = workers / 2; distance > 0; distance /= 2) {
            value = f(value, __shfl_xor_sync(~0U, value, distance));
        }
#endif
        return value;
    }
};

/// What one index of a launch does for rows: it is one of a row's workers. On a host, as in tests, the first is all
/// of them.
template <class Work>
struct EachRow {
    Work work;

    constexpr void operator()(std::uint64_t i) const {
        const std::size_t lane = i % WarpRow::workers;
#ifdef __CUDA_ARCH__
        work(WarpRow{lane}, i / WarpRow::workers);
#else
        if (lane == 0) { work(WholeRow{}, i / WarpRow::workers); }
#endif
    }
};

/// What one index of a launch does for elements in packs: a pack, or the elements behind the last whole one.
template <class Work, std::size_t Lanes>
struct EachPack {
    static constexpr std::size_t lanes = Lanes;

    Work work;
    std::size_t n;

    constexpr void operator()(std::uint64_t p) const {
        if ((p + 1) * lanes <= n) {
            work.pack(p);
        } else {
            for (std::size_t i = p * lanes; i < n; ++i) { work(i); }
        }
    }
};
template <class S>
using EachGelu = EachPack<Gelu<S>, Pack<S>::lanes>;
template <class S>
using EachGeluBackward = EachPack<GeluBackward<S>, Pack<S>::lanes>;

/// What one index of a launch does for columns: one column, in one part.
template <class Work>
struct EachColumn {
    Work work;
    std::size_t columns;

    constexpr void operator()(std::uint64_t i) const { work(Columns<1>{i % columns}, i / columns); }
};

/// A device: launch(n, work), which does work(i) for each i below n, in the order of the products' stream.
template <class Launch>
class DevicePlaceOf : public DeviceLayout {
  public:
    struct CountsAttention {};

    DevicePlaceOf(const Launch& launch, const DeviceProducts& products) : launch_(launch), products_(&products) {}

    template <class Work>
    void each(std::size_t n, const Work& work) const {
        launch_(n, work);
    }
    template <class S>
    void each(std::size_t n, const Gelu<S>& work) const {
        in_packs(n, EachGelu<S>{work, n});
    }
    template <class S>
    void each(std::size_t n, const GeluBackward<S>& work) const {
        in_packs(n, EachGeluBackward<S>{work, n});
    }
    template <class Work>
    void rows(std::size_t n, const Work& work) const {
        launch_(n * WarpRow::workers, EachRow<Work>{work});
    }
    template <class Work>
    void columns(std::size_t n, const Work& work) const {
        launch_(n * column_parts, EachColumn<Work>{work, n});
    }
    template <class S, class R, class A = shardkit::Arithmetic<S>>
    void multiply(Matrix<const S> a, Matrix<const S> b, Matrix<R> result, Into into, A scale = A{1},
                  std::size_t count = 1) const {
        products_->multiply<S>(a, b, result, into, scale, count);
    }
    template <class S>
    bool multiply_biased(Matrix<const S> a, Matrix<const S> b, const S* bias, Matrix<S> y, S* gelu) const {
        return products_->multiply_biased(a, b, bias, y, gelu);
    }
    template <class S>
    bool multiply_by_gelu_slope(Matrix<const S> a, Matrix<const S> b, const S* x, Matrix<S> result) const {
        return products_->multiply_by_gelu_slope(a, b, x, result);
    }

  private:
    template <class Packs>
    void in_packs(std::size_t n, const Packs& packs) const {
        launch_((n + Packs::lanes - 1) / Packs::lanes, packs);
    }

    Launch launch_;
    const DeviceProducts* products_;
};

}  // namespace train_gpt
