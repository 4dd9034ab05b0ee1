// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <shardkit/comm/list_verbs.hpp>
#include <shardkit/comm/reduce_op.hpp>
#include <shardkit/core/element.hpp>
#include <shardkit/core/error.hpp>
#include <shardkit/core/source_location.hpp>
#include <shardkit/detail/not_compiled.inc>
#include <shardkit/measure/figure.hpp>
#include <shardkit/measure/in_turns.hpp>
#include <shardkit/measure/plain_copy.hpp>
#include <shardkit/measure/verb_workload.hpp>
#include <shardkit/measure/verbs.hpp>
#include <shardkit/rank/context.hpp>

namespace shardkit::measure {

/// Holds what was measured of a pattern. Times are seconds of one call of it, over all ranks.
struct PatternFigure {
    std::string name;
    std::uint64_t bytes = 0;             ///< sum of the tensors' sizes: each the whole buffer of its verb
    double bus_bytes = 0;                ///< the same, each times its verb's bus factor
    Figure together;                     ///< of the whole pattern; its copy is the communication's
    Summary communication;               ///< of the communication alone
    std::optional<Summary> computation;  ///< of the computation alone; none: there is none

    /// Returns bytes per second of the communication alone.
    double algorithm_bandwidth() const noexcept { return static_cast<double>(bytes) / communication.median; }
    double bus_bandwidth() const noexcept { return bus_bytes / communication.median; }
    /// Returns the part of the communication's time that is hidden behind the computation, from the medians: 1 where
    /// the two take as long as the computation alone, 0 as long as one after the other, less where they hinder each
    /// other. None without a computation.
    std::optional<double> hidden() const noexcept {
        if (!computation) { return std::nullopt; }
        return (communication.median + computation->median - together.time.median) / communication.median;
    }
    /// Returns the time of the plain copy over that of the communication; none where nothing has to be copied.
    std::optional<double> share_of_copy() const noexcept {
        if (!together.copy) { return std::nullopt; }
        return together.copy->time.median / communication.median;
    }
};

/// Says how a verb of a pattern is called.
struct VerbOptions {
    Placement placement = Placement::out_of_place;
    ReduceOp op = ReduceOp::sum;
    std::size_t root = 0;  ///< as a rank of the group
};

/// Times a pattern of communication of one's own: verbs over lists of tensors and, if wanted, computation beside
/// them. It is timed and checked as benchmarks/run collectives does the library's verbs.
/// Memory:  each tensor has buffers of its own in the engine's memory, which the pattern keeps.
/// Order:   a call gives every verb to the communication stream, or the reduction stream where it reduces, in the
///          order of addition; then it computes; the next call starts when both are done.
/// Example: docs/measuring.md
template <class Engine>
class Pattern : public Workload {
  public:
    using Communicator = typename Engine::Communicator;

    /// Begins a pattern of no verbs. The context outlives it.
    explicit Pattern(Context<Engine>& context, std::string name) : context_(context), name_(std::move(name)) {}

    /// Adds a verb over a list of tensors, of so many elements each. Where the verb has a piece for each rank, a
    /// tensor gets elements until its pieces are whole, and bytes count these. Collective over the world.
    /// V:       a verb of measure/verbs.hpp but Barrier, or one of one's own that derives from one of them
    /// Cost:    on NCCL one launch for the list where all_gather_list and its like make one
    /// @throws  std::invalid_argument when the verb has no such placement, the group no such root or too many ranks
    ///          for exact sums of 16-bit elements, or a tensor no element; std::bad_alloc
    template <Element T = float, class V>
    Pattern& add(V verb, const Communicator& group, std::span<const std::size_t> sizes, VerbOptions options = {},
                 SourceLocation where = SourceLocation::current()) {
        static_assert(V::template offered<Communicator, T>,
                      "Pattern::add: the engine does not have this verb for these elements");
        require(V::moves_data && (options.placement == Placement::in_place ? V::in_place : V::out_of_place), where,
                "the verb has no such placement; see measure/verbs.hpp");
        require(
            !V::reduces || !shardkit::detail::adds(options.op) || sizeof(T) > 2 || group.size() <= most_exact_ranks,
            where, "more than 32 ranks add up numbers that 16-bit elements do not have; expected a smaller group");
        require(options.root < group.size(), where, "the root is no rank of the group");
        Shape shape{members_of(group, where), group.rank(), 0, options.root, options.op};
        std::vector<Shape> shapes;
        for (const std::size_t size : sizes) {
            require(size > 0, where, "a tensor of 0 elements; expected at least 1");
            const std::size_t pieces = V::pieces(shape.ranks());
            shape.piece = (size + pieces - 1) / pieces;
            shapes.push_back(shape);
            shape.first += pieces * shape.piece;
            const std::uint64_t bytes = pieces * shape.piece * sizeof(T);
            const auto ranks = static_cast<double>(shape.ranks());
            bytes_ += bytes;
            bus_bytes_ += static_cast<double>(bytes) * V::bus_factor(ranks);
            copied_ += static_cast<double>(bytes) * V::copied(options.placement, ranks);
        }
        const auto stream = V::reduces ? context_.reduction_stream() : context_.communication_stream();
        if constexpr (V::in_place) {
            if (options.placement == Placement::in_place) {
                add_each<InPlace<Engine, V, T>>(verb, group, shapes, stream);
            }
        }
        if constexpr (V::out_of_place) {
            if (options.placement == Placement::out_of_place) {
                if constexpr (takes_lists<V>) {
                    parts_.push_back(std::make_unique<List<V, T>>(context_, group, shapes, stream, options.op));
                } else {
                    add_each<OutOfPlace<Engine, V, T>>(verb, group, shapes, stream);
                }
            }
        }
        return *this;
    }
    /// Adds a verb over one tensor.
    template <Element T = float, class V>
    Pattern& add(V verb, const Communicator& group, std::size_t size, VerbOptions options = {},
                 SourceLocation where = SourceLocation::current()) {
        return add<T>(std::move(verb), group, std::span<const std::size_t>(&size, 1), options, where);
    }

    /// Adds what the rank computes once all verbs are started; on a GPU it gives it to the compute stream.
    Pattern& compute(std::function<void()> work) {
        computation_ = std::move(work);
        return *this;
    }

    /// Checks every element of every rank, warms up, and times in turns: the whole pattern, its communication alone,
    /// its computation alone, and plain copies of what the communication must read and write. Collective over the
    /// world; every rank gets the same figure.
    /// @throws  std::invalid_argument without a verb or a round; what the engine throws
    PatternFigure measure(const Repeats& repeats = {}, SourceLocation where = SourceLocation::current()) {
        require(!parts_.empty(), where, "no verb; expected add() before measure()");
        require(repeats.rounds > 0, where, "0 rounds; expected at least 1");
        const auto copied = static_cast<std::uint64_t>(copied_);
        PatternFigure measured{name_, bytes_, bus_bytes_, checked(context_, repeats, bytes_, *this), {}, {}};
        PlainCopy copy(context_, copied);
        std::vector<Turn> turns{[this](std::size_t times) { call(times); }};
        if (computation_) {
            turns.emplace_back([this](std::size_t times) { repeat(times, true, false); });
            turns.emplace_back([this](std::size_t times) { repeat(times, false, true); });
        }
        const std::size_t own = turns.size();
        add_copies(repeats, copied, copy, turns);
        const std::vector<Summary> times =
            time_in_turns(context_, repeats.rounds, measured.together.calls, std::span(turns));
        measured.together.time = times.front();
        measured.communication = times[own > 1 ? 1 : 0];
        if (computation_) { measured.computation = times[2]; }
        measured.together.copy = fastest_copy(copy, copied, std::span(times).subspan(own));
        return measured;
    }

    void prepare() override {
        for (const auto& part : parts_) { part->prepare(); }
    }
    void call(std::size_t times) override { repeat(times, true, static_cast<bool>(computation_)); }
    std::uint64_t count_wrong() override {
        std::uint64_t wrong = 0;
        for (const auto& part : parts_) { wrong += part->count_wrong(); }
        return wrong;
    }

  private:
    static constexpr std::size_t most_exact_ranks = 32;  // see Shape
    // Not what derives from them: its call is another one.
    template <class V>
    static constexpr bool takes_lists =
        std::is_same_v<V, AllGather> || std::is_same_v<V, ReduceScatter> || std::is_same_v<V, AllReduce>;

    /// Times a list of tensors whose verb takes lists.
    template <class V, class T>
    class List final : public StartedWorkload {
      public:
        List(Context<Engine>& context, const Communicator& group, const std::vector<Shape>& shapes,
             const typename Engine::Stream& stream, ReduceOp op)
            : group_(group), stream_(stream), op_(op) {
            for (const Shape& shape : shapes) {
                tensors_.push_back(std::make_unique<OutOfPlace<Engine, V, T>>(context, group, shape, stream));
                list_.push_back(tensors_.back()->listed());
            }
        }
        void prepare() override {
            for (const auto& tensor : tensors_) { tensor->prepare(); }
        }
        void start() override {
            const std::span<const ListedTensor<T>> list(list_);
            if constexpr (std::is_same_v<V, AllGather>) { all_gather_list(group_, list, stream_); }
            if constexpr (std::is_same_v<V, ReduceScatter>) { reduce_scatter_list(group_, op_, list, stream_); }
            if constexpr (std::is_same_v<V, AllReduce>) { all_reduce_list(group_, op_, list, stream_); }
        }
        void call(std::size_t times) override {
            for (std::size_t i = 0; i < times; ++i) { start(); }
            stream_.synchronize();
        }
        std::uint64_t count_wrong() override {
            std::uint64_t wrong = 0;
            for (const auto& tensor : tensors_) { wrong += tensor->count_wrong(); }
            return wrong;
        }

      private:
        Communicator group_;
        typename Engine::Stream stream_;
        ReduceOp op_;
        std::vector<std::unique_ptr<OutOfPlace<Engine, V, T>>> tensors_;
        std::vector<ListedTensor<T>> list_;
    };

    static void require(bool holds, SourceLocation where, const char* otherwise) {
        if (!holds) { throw_invalid_argument(where, "Pattern: ", otherwise); }
    }
    /// World ranks of a group, in its order.
    std::vector<std::size_t> members_of(const Communicator& group, SourceLocation where) {
        const auto stream = context_.communication_stream();
        const auto mine = context_.template buffer<double>(1);
        const auto all = context_.template buffer<double>(group.size());
        std::vector<double> ranks{static_cast<double>(context_.rank())};
        Engine::Kernels::copy_in(stream, std::span<const double>(ranks), mine.span());
        all_gather(group, std::span<const double>(mine.span()), all.span(), stream, where);
        ranks.resize(group.size());
        Engine::Kernels::copy_out(stream, std::span<const double>(all.span()), std::span(ranks));
        return {ranks.begin(), ranks.end()};
    }
    template <class Made, class V>
    void add_each(const V& verb, const Communicator& group, const std::vector<Shape>& shapes,
                  const typename Engine::Stream& stream) {
        for (const Shape& shape : shapes) {
            parts_.push_back(std::make_unique<Made>(context_, group, shape, stream, verb));
        }
    }
    void repeat(std::size_t times, bool communicates, bool computes) {
        const auto& streams = context_.streams();
        for (std::size_t i = 0; i < times; ++i) {
            streams.fork();
            if (communicates) {
                for (const auto& part : parts_) { part->start(); }
            }
            if (computes) { computation_(); }
            streams.join();
        }
        streams.synchronize();
    }

    Context<Engine>& context_;
    std::string name_;
    std::vector<std::unique_ptr<StartedWorkload>> parts_;
    std::function<void()> computation_;
    std::uint64_t bytes_ = 0;
    double bus_bytes_ = 0;
    double copied_ = 0;
};

}  // namespace shardkit::measure
