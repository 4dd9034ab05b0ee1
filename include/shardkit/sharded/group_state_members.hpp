// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include <shardkit/sharded/fill_parameters.hpp>
#include <shardkit/sharded/group_state.hpp>
#include <shardkit/sharded/prepare_reductions.hpp>

// Defines the members of GroupState out of its class, so that `extern template` keeps them out of a user's file.

namespace shardkit::detail SHARDKIT_BUILD {

template <class Engine, class Precision>
GroupState<Engine, Precision>::GroupState(Context<Engine>& context, const GroupValues& values,
                                          std::span<Gather> adopted_parameters, std::span<Gradient> adopted_gradients,
                                          SourceLocation where)
    : GroupState(context, place_group<Engine, Precision>(context, values, where), adopted_parameters,
                 adopted_gradients) {
    prepare_reductions(geometry_, comms_, where);
    if (!adopted_parameters.empty()) {
        this->hold(std::as_bytes(adopted_parameters), std::as_bytes(adopted_gradients), where);
    }
}

template <class Engine, class Precision>
GroupState<Engine, Precision>::GroupState(Context<Engine>& context, PlacedGroup<Engine>&& placed,
                                          std::span<Gather> adopted_parameters, std::span<Gradient> adopted_gradients)
    : Base(context, std::move(placed), layout::alignment_for(Precision::narrowest),
           &Base::template precision_tag<Precision>),
      parameters_(context, geometry_, comms_, statements_, step_.group(), adopted_parameters),
      gradients_(context, geometry_, comms_, statements_, step_.group(), adopted_gradients) {
    if (statements_.compares_values() && !adopted_parameters.empty()) {
        statements_.before_next([this] { digest_adopted(); });
    }
    Access::living(context).push_back(&geometry_.path);
}

template <class Engine, class Precision>
GroupState<Engine, Precision>::~GroupState() {
    if (parameters_.windows() > 0) {
        end_program("'", path(), "' ended or was assigned to while ", parameters_.windows(),
                    " window(s) of it are open; the last one was opened at ", parameters_.opened().file, ":",
                    parameters_.opened().line);
    }
    if (directed_.any() != nullptr) {
        end_program("'", path(), "' ended or was assigned to while a schedule of its model is followed");
    }
    if (step_.busy()) {
        end_program("'", path(), "' ended or was assigned to while an accumulation or gradients over it live on");
    }
    if (reader_ != nullptr) {
        end_program("'", path(), "' ended or was assigned to while a save of it is pending: commit it before");
    }
    // Searched from the end: groups mostly end in reverse order.
    Access::living(context_).erase_if([this](const std::string* other) { return other == &geometry_.path; });
    context_.settle();
}

template <class Engine, class Precision>
void GroupState<Engine, Precision>::open_window(Gathers gathers, SourceLocation where) {
    this->require_whole("unshard", where);
    directed_.open(where);
    if (directed_.led()) {
        parameters_.announce(gathers, where);
    } else {
        parameters_.open(gathers, where);
    }
}

template <class Engine, class Precision>
void GroupState<Engine, Precision>::use_window(SourceLocation opened) {
    directed_.before(Act::use, opened);
    parameters_.show(opened);
    parameters_.wait();
    directed_.after(Act::use, opened);
}

template <class Engine, class Precision>
void GroupState<Engine, Precision>::summon_window(SourceLocation where) {
    this->require_whole("summon_full_params", where);
    directed_.open(where);
    parameters_.summon(where);
}

template <class Engine, class Precision>
void GroupState<Engine, Precision>::close_window() noexcept {
    parameters_.close();
    directed_.closed();
}

template <class Engine, class Precision>
void GroupState<Engine, Precision>::take_gradients(SourceLocation where, std::string_view verb, Writes writes) {
    directed_.expect(Act::zero, where, verb);
    if (step_.reduced() && this->has_all_microbatches()) {
        throw_usage_error(where, "'", path(), "': ", verb,
                          "() after the last microbatch was reduced: ", this->microbatches(),
                          " microbatch(es) of this accumulation were added; say how many there ",
                          "are, as Accumulation{model, microbatches}");
    }
    step_.require_release(path(), verb, where);
    step_.hand_out(path(), verb, where);
    try {
        directed_.before(Act::zero, where);
        gradients_.open(writes == Writes::backward, where);
        directed_.after(Act::zero, where);
    } catch (...) {
        step_.take_back();
        throw;
    }
}

template <class Engine, class Precision>
void GroupState<Engine, Precision>::drop_gradients() noexcept {
    ++gradient_generation_;
    gradients_.discard();
    step_.drop();
}

template <class Engine, class Precision>
void GroupState<Engine, Precision>::add_gradients(SourceLocation where, std::string_view verb) {
    ++gradient_generation_;
    try {
        directed_.expect(Act::add, where, verb);
        step_.check_add(path(), where);
        if constexpr (checked) { gradients_.require_overwritten(where); }
        directed_.before(Act::add, where);
    } catch (...) {
        step_.take_back();
        gradients_.discard();
        throw;
    }
    gradients_.add(step_.add());
    if (!directed_.led()) { gradients_.reduce_due(where); }
    directed_.after(Act::add, where);
}

template <class Engine, class Precision>
void GroupState<Engine, Precision>::finish_gradients(SourceLocation where, std::string_view verb) {
    directed_.finish(where, verb);
    step_.finish(path(), where);
    if (!directed_.led()) { gradients_.reduce_due(where); }
}

template <class Engine, class Precision>
void GroupState<Engine, Precision>::skip_step(SourceLocation where) {
    directed_.expect(Act::skip, where, "skip");
    step_.check_skip(path(), where);
    directed_.before(Act::skip, where);
    step_.skip();
    directed_.after(Act::skip, where);
}

template <class Engine, class Precision>
void GroupState<Engine, Precision>::begin_update(SourceLocation where) const {
    parameters_.begin_update(where);
    if (reader_ != nullptr) { reader_->wait(); }
}

template <class Engine, class Precision>
void GroupState<Engine, Precision>::add_norms(const double* scale, std::span<PartialNorms> norms,
                                              PartialNorms* lanes) {
    using Work = AddPartialNorms<Reduction>;
    const auto stream = context_.compute_stream();
    const std::size_t origin = geometry_.range(geometry_.table.reduced).begin;
    for (const bool copies : {false, true}) {
        std::size_t p = 0;
        for (const IndexRange segment : copies ? this->copied_segments() : this->counted_segments()) {
            while (segment.begin + origin >= geometry_.parameters[p].range.end) { ++p; }
            const std::span<const Reduction> elements = gradients_.reduced().subspan(segment.begin, segment.size());
            // A host goes through them once.
            const std::uint64_t count = host_reads<Engine> ? 1 : Work::lanes_of(segment.size());
            run_each<Engine>(stream, count, Work{elements, count, scale, lanes});
            Engine::Kernels::run_once(
                stream, FoldPartialNorms{std::span<const PartialNorms>(lanes, count), &norms[p], copies});
        }
    }
}

template <class Engine, class Precision>
NormList<Engine>& GroupState<Engine, Precision>::list_for_norm(std::uint64_t norm) {
    auto& list = context_.template kept<NormTables<Engine, Reduction>>();
    list.list(
        norm,
        {this->identity(), &this->life(), gradients_.reduced(), &this->counted_segments(), &this->copied_segments()},
        !step_.skipped());
    return list;
}

template <class Engine, class Precision>
std::vector<ShardInfo> GroupState<Engine, Precision>::shards() {
    std::vector<ShardInfo> list;
    const std::span<const Gather> resting = parameters_.resting();
    if (Precision::gathers_codes) {
        // Codes are no numbers without their scales, and follow from the masters.
    } else if (parameters_.rests_with_copies()) {
        parameters_.wait();  // a gather may still write the copies
        // One piece at a time: replica 0 of a piece is its owner's, as only the owner updates it.
        const Extent extent = parameters_.resting_extent();
        for (std::size_t s = 0; s < geometry_.shards; ++s) {
            if (extent == Extent::shard && s != geometry_.shard_index) { continue; }
            for (std::size_t p = 0; p < geometry_.pieces(); ++p) {
                const PiecePlace place{s, p};
                const bool current = place == geometry_.place() || parameters_.copies_are_current();
                list_shards(geometry_, "parameter", extent, resting, parameters_.resting_range().begin,
                            HeldRange{geometry_.range_of(place), place, current}, list);
            }
        }
    } else {
        list_shards(geometry_, "parameter", parameters_.resting_extent(), resting, parameters_.resting_range().begin,
                    list);
    }
    if constexpr (Precision::has_master) {
        if (geometry_.keeps_master()) {
            list_shards(geometry_, "master", geometry_.table.updated, std::span<const Master>(parameters_.master()),
                        geometry_.updated.begin, list);
        }
    }
    return list;
}

template <class Engine, class Precision>
void GroupState<Engine, Precision>::write(std::size_t parameter, const TensorValueSource& values,
                                          SourceLocation where) {
    begin_write(where);
    torn_.begin(parameter, TornValues::parameters, "load", where);
    ValuesDigest digest(geometry_.parameters[parameter].range.size());
    for_each_written(statements_.compares_values() ? &digest : nullptr,
                     [&](auto target, std::size_t origin, auto rounding, ValuesDigest* to) {
                         write_range<decltype(rounding)>(parameter, target, origin, values, to);
                     });
    settle_frozen(parameter);
    parameters_.end_write();
    torn_.end(parameter, TornValues::parameters);
    if (statements_.compares_values()) { statements_.set_values(parameter, digest); }
}

template <class Engine, class Precision>
template <class Rounding, class T>
void GroupState<Engine, Precision>::write_range(std::size_t parameter, std::span<T> target, std::size_t origin,
                                                const TensorValueSource& values, ValuesDigest* digest) {
    const PlacedParameter& written = geometry_.parameters[parameter];
    const IndexRange range = intersect(written.range, {origin, origin + target.size()});
    const T* const array = values.array<T>();
    const bool as_it_is = array != nullptr && Rounding::template keeps<T>;
    constexpr std::size_t read_at_once = 128;
    double read[read_at_once];
    List<T> staged(std::min(staged_elements<Engine>, range.size()));
    const auto add = [&](std::span<const T> written_now, std::size_t first) {
        if constexpr (FloatingElement<T>) {
            if (digest != nullptr) { digest->add(first, written_now); }
        }
    };
    for (std::size_t at = range.begin; at < range.end;) {
        const std::size_t first = at - written.range.begin;
        const std::size_t run = std::min(written.part.run_at(first), range.end - at);
        if (as_it_is && run >= staged.size()) {
            const std::span<const T> whole_run(array + written.part.whole_index(first), run);
            Engine::Kernels::copy_in(context_.compute_stream(), whole_run, target.subspan(at - origin, run));
            add(whole_run, first);
            at += run;
            continue;
        }
        const std::size_t count = std::min(staged.size(), range.end - at);
        for (std::size_t i = 0; i < count; i += read_at_once) {
            const std::span<double> some(read, std::min(read_at_once, count - i));
            values.read(written.part, first + i, some);
            for (std::size_t k = 0; k < some.size(); ++k) { staged[i + k] = Rounding::template of<T>(some[k]); }
        }
        const std::span<const T> written_now = staged.span().first(count);
        Engine::Kernels::copy_in(context_.compute_stream(), written_now, target.subspan(at - origin, count));
        add(written_now, first);
        at += count;
    }
}

template <class Engine, class Precision>
void GroupState<Engine, Precision>::digest_reduced(StatedStep& stated) {
    if constexpr (host_reads<Engine>) {
        if (context_.world_size() == 1 || !trainable() || geometry_.table.reduced != Extent::full) { return; }
        await_host_memory(context_);
        for (const PlacedParameter& parameter : geometry_.parameters) {
            if (parameter.frozen || !parameter.whole_everywhere()) { continue; }
            const std::span<const Reduction> sums = gradients_.reduced();
            ValuesDigest digest(parameter.range.size());
            digest.add(0, sums.subspan(parameter.range.begin, parameter.range.size()));
            stated.assumed = statement_hash(stated.assumed, digest.hash());
            stated.assumed_sum += digest.sum();
        }
    }
}

template <class Engine, class Precision>
void GroupState<Engine, Precision>::digest_adopted() {
    if constexpr (host_reads<Engine>) {
        await_host_memory(context_);
        for (std::size_t p = 0; p < geometry_.parameters.size(); ++p) {
            const IndexRange range = geometry_.parameters[p].range;
            ValuesDigest digest(range.size());
            digest.add(0, parameters_.full().subspan(range.begin, range.size()));
            statements_.set_values(p, digest);
        }
    }
}

}  // namespace shardkit::detail SHARDKIT_BUILD
