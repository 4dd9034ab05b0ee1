// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <shardkit/comm/stream.hpp>

namespace stream_test {

namespace {

using shardkit::InlineStream;
using shardkit::Stream;

/// The least that is a stream.
struct Minimal {
    struct Event {};
    Event record() const { return {}; }
    void wait(const Event&) const {}
    void synchronize() const {}
};
static_assert(Stream<Minimal> && Stream<InlineStream>);

struct NoEvent {
    int record() const { return 0; }
    void wait(int) const {}
    void synchronize() const {}
};
struct EventNeedsValue : Minimal {
    struct Event {
        explicit Event(int) {}
    };
    Event record() const { return Event(0); }
    void wait(const Event&) const {}
};
struct RecordsAnother : Minimal {
    int record() const { return 0; }
};
struct RecordsNotConst : Minimal {
    Event record() { return {}; }
};
struct WaitsForNumbers : Minimal {
    void wait(int) const {}
};
struct NeverDone : Minimal {
    void synchronize(int) const {}
};
struct NotCopyable : Minimal {
    NotCopyable(NotCopyable&&) = default;
    NotCopyable& operator=(NotCopyable&&) = default;
};
static_assert(!Stream<NoEvent> && !Stream<EventNeedsValue> && !Stream<RecordsAnother> && !Stream<RecordsNotConst>);
static_assert(!Stream<WaitsForNumbers> && !Stream<NeverDone> && !Stream<NotCopyable> && !Stream<int>);

}  // namespace

TEST_CASE("InlineStream: work is done before the call returns, so every event has happened") {
    const InlineStream stream;
    stream.wait(stream.record());
    CHECK_NOTHROW(stream.wait(InlineStream::Event{}));
    CHECK_NOTHROW(stream.synchronize());
}

}  // namespace stream_test
