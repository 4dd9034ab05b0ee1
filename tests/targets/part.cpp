// SPDX-License-Identifier: Apache-2.0
// Compiled once for each processor, with -DPART= the part's name.
#include "part.hpp"

#include <array>
#include <span>

#include <shardkit/backend/host/kernels.hpp>
#include <shardkit/backend/host/rank_order_reduction.hpp>
#include <shardkit/core/fp16.hpp>
#include <shardkit/core/lane_math.hpp>
#include <shardkit/kernels/state_storage.hpp>

namespace sk = shardkit;
using Kernels = sk::detail::HostKernels;

namespace {

/// A rule of the user's: its code belongs to the part, that of the lanes which it is called with to whom they name.
struct OwnUpdate {
    float rate = 0.01F;

    template <class V>
    void operator()(V& parameter, V& sum, V gradient) const {
        using sk::rules::square_root;
        sum = sum + gradient * gradient;
        parameter = parameter - gradient * rate / (square_root(sum) + 1e-8F);
    }
};

template <class Storage>
std::vector<float> updated(sk::detail::StateSpan<Storage, float> state) {
    std::vector<float> parameters(count);
    std::vector<float> gradient(count);
    std::vector<sk::bf16> gathered(count);
    for (std::size_t i = 0; i < count; ++i) { parameters[i] = start_of(i); }
    for (int step = 0; step < steps; ++step) {
        for (std::size_t i = 0; i < count; ++i) { gradient[i] = gradient_of(i, step); }
        const std::uint64_t number = 0;
        sk::rules::UpdatedElements<float, 1, Storage> elements{
            count, parameters.data(), false, nullptr, gradient.data(), {state}, {.seed = 1, .steps = &number}};
        if (Storage::format != sk::StateFormat::full) { elements.gathered = gathered.data(); }
        Kernels::update(OwnUpdate{}, elements);
        if (elements.gathered == nullptr) {
            Kernels::convert({}, std::span<const float>(parameters), std::span(gathered));
        }
    }
    for (const sk::bf16 value : gathered) { parameters.push_back(static_cast<float>(value)); }
    return parameters;
}

/// The sums of three ranks' elements.
template <class T>
void append_sums(std::vector<float>& made) {
    std::array<std::vector<T>, 3> inputs;
    for (std::size_t q = 0; q < inputs.size(); ++q) {
        for (std::size_t i = 0; i < count; ++i) { inputs[q].push_back(T(gradient_of(i, static_cast<int>(q)))); }
    }
    std::vector<T> sums(count);
    sk::host::detail::reduce_in_rank_order(
        sk::host::detail::reducer_of<T, T>, sk::ReduceOp::sum, inputs.size(), count,
        [&](std::size_t q) { return inputs[q].data(); }, sk::host::detail::Result<T>{sums.data()});
    for (const T sum : sums) { made.push_back(static_cast<float>(sum)); }
}

}  // namespace

namespace PART {

Made made() {
    Made made;
    std::vector<float> sums(count);
    made.exact = updated<sk::detail::FullStates>(sums);
    append_sums<sk::fp16>(made.exact);
    append_sums<sk::bf16>(made.exact);
    append_sums<float>(made.exact);
    sk::detail::NormSum norm;
    std::vector<float> gradient(count);
    for (std::size_t i = 0; i < count; ++i) { gradient[i] = gradient_of(i, 0); }
    Kernels::norm_partial({}, std::span<const float>(gradient), 1.0, norm);
    made.exact.push_back(static_cast<float>(norm.squares.value()));

    using Coded = sk::detail::StateStorage<sk::StateFormat::block8, 1>;
    std::vector<std::uint8_t> codes(count);
    std::vector<float> scales(sk::Block8::blocks(count));
    made.stored = updated<Coded>({codes, scales});
    return made;
}

}  // namespace PART
