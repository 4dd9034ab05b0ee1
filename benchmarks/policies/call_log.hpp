// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <vector>

#include <shardkit/comm/journal.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/verbs/all_gather.hpp>
#include <shardkit/verbs/all_reduce.hpp>
#include <shardkit/verbs/reduce_scatter.hpp>

namespace benchmarks::policies {

/// What a model's collectives do on one rank; T: its elements. A step's addresses are the same every time, so that
/// its collectives can be made again without the step, on the same buffers.
template <class Communicator, class T>
class CallLog final : public shardkit::recorder::CallObserver {
    using Number = shardkit::Arithmetic<T>;

  public:
    /// f() without communication.
    template <class F>
    void silently(shardkit::engine::Journal& journal, F f) {
        records_ = false;
        observe(journal, f);
    }
    /// f(), and remembers its collectives in place of those before.
    template <class F>
    void record(shardkit::engine::Journal& journal, F f) {
        calls_.clear();
        records_ = true;
        observe(journal, f);
    }
    /// Makes the remembered collectives again, back to back.
    void replay(const shardkit::Stream& stream) const {
        for (const Made& made : calls_) {
            const bool known = again<T, T>(made, stream) || again<T, Number>(made, stream) ||
                               again<Number, Number>(made, stream) || again<double, double>(made, stream);
            if (!known) { throw std::logic_error("a collective of other elements than the model's"); }
        }
    }

    bool before(const shardkit::recorder::ObservedCall& seen) override {
        if (!records_) { return false; }
        calls_.push_back(
            {*static_cast<const Communicator*>(seen.communicator), seen.call.signature, seen.input, seen.output});
        return true;
    }

  private:
    struct Made {
        Communicator comm;
        shardkit::Signature signature;
        const void* input;  // null: in place
        void* output;
    };

    template <class F>
    void observe(shardkit::engine::Journal& journal, F f) {
        journal.observe(this);
        f();
        journal.observe(nullptr);
    }

    /// False when the call is not of these elements.
    template <class In, class Out>
    static bool again(const Made& made, const shardkit::Stream& stream) {
        using shardkit::Verb;
        const shardkit::Signature& s = made.signature;
        if (s.in != shardkit::element_type_of<In> || s.out != shardkit::element_type_of<Out>) { return false; }
        const std::size_t ranks = made.comm.size();
        const auto in = [&](std::size_t n) { return std::span<const In>(static_cast<const In*>(made.input), n); };
        const auto out = [&](std::size_t n) { return std::span<Out>(static_cast<Out*>(made.output), n); };
        if (made.input != nullptr) {
            if (s.verb == Verb::all_reduce) {
                shardkit::all_reduce(made.comm, s.op, in(s.count), out(s.count), stream);
                return true;
            }
            if (s.verb == Verb::reduce_scatter) {
                shardkit::reduce_scatter(made.comm, s.op, in(s.count), out(s.count / ranks), stream);
                return true;
            }
        }
        if constexpr (std::is_same_v<In, Out>) {
            if (s.verb == Verb::all_gather && made.input != nullptr) {
                shardkit::all_gather(made.comm, in(s.count), out(ranks * s.count), stream);
            } else if (s.verb == Verb::all_gather) {
                shardkit::all_gather_in_place(made.comm, out(ranks * s.count), stream);
            } else if (s.verb == Verb::reduce_scatter) {
                shardkit::reduce_scatter_in_place(made.comm, s.op, out(s.count), stream);
            } else if (s.verb == Verb::all_reduce) {
                shardkit::all_reduce_in_place(made.comm, s.op, out(s.count), stream);
            } else {
                return false;
            }
            return true;
        } else {
            return false;
        }
    }

    bool records_ = false;
    std::vector<Made> calls_;
};

}  // namespace benchmarks::policies
