"""Evaluate a stack under load, in an order that protects hosts and readings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any, Protocol

from autotune.deploy.deploy_result import DeployFailed, Fleet
from autotune.diagnose.bottleneck import Bottleneck
from autotune.diagnose.diagnosis import WatchedReading, find_max_rss
from autotune.environments.clock import StudyClock
from autotune.environments.evaluation import (
    Evaluation,
    EvaluationRequest,
    FailedEvaluation,
    Measurement,
    MeasurementHistory,
    Recorder,
)
from autotune.environments.overload_recovery import STEP_SECONDS, OverloadRecovery
from autotune.environments.peak import Peak
from autotune.estimate import Estimate, InstanceCapacity
from autotune.loads.load_commands import check_rate
from autotune.measure import Capacity, Reading, SearchLimits, Slo, search_peak
from autotune.measure.reading import TODAY_PURPOSE, WARM_UP_PURPOSE
from autotune.measure.steal import HIGH_STEAL_SHARE, CpuSteal, find_worst_steal
from autotune.measure.warm_up import (
    MAX_WINDOWS,
    PREFILLED_RISE_WINDOWS,
    RISE_WINDOWS,
    UNKNOWN_START_RATE,
    WarmUpResult,
    run_warm_up,
)
from autotune.monitor.host_watch import Observations
from autotune.services.base import Settings
from autotune.services.registry import SHIPPED, Catalogue
from autotune.transports.base import ConnectionLost

# A reading at today's rate lasts until about this many requests are slower than the SLO's percentile.
TODAY_TAIL_REQUESTS = 20
MIN_TODAY_SECONDS, MAX_TODAY_SECONDS = 3.0, 10.0
TODAY_TIME_SHARE = (
    0.25  # maximum share of a measurement's remaining time for a reading at today's rate
)
# Seconds of load before a reading counts, so that process pools can grow to the required size. A
# shorter time is enough if the rate is at most a fifth above the previous rate.
RAMP_SECONDS, SHORT_RAMP_SECONDS, SHORT_RAMP_INCREASE = 1.0, 0.25, 0.2
# number of single requests before the first load; the lower latency is used, because caches may be cold
LATENCY_PROBES = 2
# If pages are slow, the search's minimum rate is this share of the expected peak. Without an expected
# peak, it is this share of the rate that one client reaches with sequential requests.
MIN_RATE_SHARE = 0.1
# maximum number of warm-up windows per second of an evaluation's time limit
WINDOWS_PER_SECOND = 0.4
# A measurement ends once the sd of its log peak is this low. CLAIM_SD applies if a verdict depends on the
# measurement, and SEARCH_SD applies during the search. Repeated measurements differ by at least 5 %
# (`estimate.MEASUREMENT_LOG_SD`), so more precision does not help the search.
CLAIM_SD, SEARCH_SD = 0.03, 0.05
# A measurement may end at this sd if the peak is several times the incumbent's, or in a short study.
# About 90 % of the estimates are then within 20 % of the true peak. The leaders are measured again in
# the finals and the proof.
ROUGH_SD = 0.13
# During the search, a measurement ends after this many readings that hardly reduced the sd. Repeated
# measurements differ by more than the sd, so further readings are unnecessary. Leaders are measured
# again.
MAX_STALLED_READINGS = 5
# The search stops if the peak is below this share of the expected peak.
HOPELESS_PEAK_SHARE = 0.02
# If the rate at the end of a warm-up is below this share of its highest rate, the stack limited the load.
# The expected peak is then ``OVERLOAD_PEAK_FACTOR`` times the rate that the stack sustained.
OVERLOAD_RATE_SHARE = 0.9
OVERLOAD_PEAK_FACTOR = 1.5
# sd of the log peak of an unmeasured configuration, around the expected log peak.
UNMEASURED_PEAK_SD = 0.5
# maximum length of a warm-up window with few requests, as a multiple of the latency limit
WINDOW_LIMITS = 5.0
# maximum load time of one peak search if pages are slow
MAX_SLOW_LOAD_SECONDS = 1200.0
SETTLED_WINDOWS = 2  # a warm-up ends after this number of settled windows
# maximum load time of one peak search
MAX_LOAD_SECONDS = 60.0
# In short studies, a rough peak suffices for the search after this share of the usual time of a
# measurement, but at least after MIN_ROUGH_LOAD_SECONDS. In other studies, this time would exceed
# MAX_ROUGH_LOAD_SECONDS, and rough measurements would not be much shorter than precise ones.
SHORT_STUDY_SHARE = 0.5
MIN_ROUGH_LOAD_SECONDS, MAX_ROUGH_LOAD_SECONDS = 20.0, 35.0


def build_search_limits(max_rate: float) -> SearchLimits:
    """Return the limits of a peak search on which no claim depends, with rates in requests/s."""
    minimum_rate = min(SearchLimits.min_rate, max_rate)
    return SearchLimits(
        max_rate=max_rate,
        min_rate=minimum_rate,
        max_load_seconds=MAX_LOAD_SECONDS,
        max_stalled_readings=MAX_STALLED_READINGS,
        rough_sd=ROUGH_SD,
    )


class StackMeter(Protocol):
    """Sends load to a deployed stack and observes its hosts."""

    def take_reading(self, rate: float, seconds: float, *, ramp_seconds: float) -> WatchedReading:
        """Send ``rate`` requests/s for ``seconds``, after ``ramp_seconds`` that are not
        measured.
        """
        ...

    def find_bottleneck(
        self, settings: Settings, watched_readings: Sequence[WatchedReading]
    ) -> Bottleneck | None:
        """Return the bottleneck that limits the peak, from readings at rates around the peak."""
        ...

    def estimate_capacities(
        self, settings: Settings, watched_readings: Sequence[WatchedReading]
    ) -> Mapping[str, InstanceCapacity]:
        """Return the capacity of each service instance, estimated from readings that met the
        SLO.
        """
        ...

    def begin_measurement(self, *, is_deployed: bool) -> Sequence[Mapping[str, Any]]:
        """Start the response checks of a trial, and return new reference responses. The method is
        called before and after each deployment.

        Raises AutotuneError if the stack returns wrong responses before the first trial.
        """
        ...

    def end_warm_up(self, windows: int) -> None:
        """Discard the response checks before the last ``windows`` windows of the warm-up."""
        ...

    def probe_latency(self) -> float | None:
        """Return the latency of one request without load, in seconds, or ``None`` if unknown."""
        ...

    def count_cache_lookups(self) -> tuple[int, int] | None:
        """Return the hits and misses of all caches since their start, or ``None`` if the stack
        lacks a cache.
        """
        ...

    def wait_until_drained(self) -> float | None:
        """Wait until the effects of an overload have passed. Return the latency of a single request
        afterwards, in seconds, or ``None`` if unknown.
        """
        ...


class LoadSession:
    """Session on a real or simulated stack: see `base.Session`.

    The session tracks the state of the stack: noise of readings, whether caches are filled, and CPU
    steal.
    """

    def __init__(
        self,
        fleet: Fleet,
        meter: StackMeter,
        slo: Slo,
        limits: SearchLimits,
        history: MeasurementHistory,
        clock: StudyClock | None = None,
        *,
        highest_rate: Callable[[], float] = lambda: inf,
        catalogue: Catalogue = SHIPPED,
    ) -> None:
        """Create a session. ``highest_rate()`` returns the highest allowed rate, and may be called only
        after a deployment. ``catalogue`` contains the services of the stack.
        """
        self._catalogue = catalogue
        self.fleet, self.meter, self.slo = fleet, meter, slo
        self._limits, self._highest_rate = limits, highest_rate
        self.clock = clock or StudyClock()
        self.steal = CpuSteal()
        self._steal_noted = False  # true after the user was notified of CPU steal
        self._noted_subjects: set[str] = set()  # hosts and servers of which the user was notified
        self._last_rate = 0.0  # rate of the last reading, or 0 if the reading was truncated
        self._errors_seen = False  # true after a reading with failed requests
        self._noise = history.noise
        self._windows: list[WatchedReading] = []  # the windows of the last warm-up
        self._is_warm = False  # true if this session has filled the caches
        self._recovery = OverloadRecovery()

    @property
    def limits(self) -> SearchLimits:
        """Return the limits of a peak search, with rates in iterations of the load per second."""
        highest_rate = self._highest_rate()
        if highest_rate >= self._limits.max_rate:
            return self._limits
        minimum_rate = min(self._limits.min_rate, highest_rate)
        return replace(self._limits, max_rate=highest_rate, min_rate=minimum_rate)

    def _loses_cache(self, restarted_instances: Iterable[str]) -> bool:
        return any(self._catalogue.loses_cache(name) for name in restarted_instances)

    def evaluate(
        self, settings: Settings, request: EvaluationRequest, record: Recorder
    ) -> Evaluation:
        """Deploy ``settings``, warm up, measure the capacity, and diagnose the bottleneck. Return the
        evaluation.

        Each reading is recorded before the search uses it. After a failed deployment, the previous
        configuration is deployed again.
        """
        start_time = self.clock.now()
        self.check_answers(record, is_deployed=False)
        try:
            with self.clock.time_activity("deploy"):
                deploy_result = self.fleet.deploy(settings)
        except DeployFailed as error:
            self._is_warm = False  # services that were restored may have been restarted
            return FailedEvaluation(error.message)
        record.on_deployed(deploy_result)
        self._forget_readings(deploy_result.restarted_instances)
        self.check_answers(record, is_deployed=True)
        deadline = start_time + request.max_seconds
        try:
            warm_up_result = self._warm_up(request, record, is_prefilled=deploy_result.prefilled)
            expected_peak = update_expected_peak(request.expected_peak, warm_up_result)
            self._measure_today(request.today_rate, expected_peak, record, deadline)
            capacity, readings = self._search_capacity(
                request, expected_peak, warm_up_result.base_latency, record, deadline
            )
            self.fleet.verify()  # verify the deployment before the peak is recorded
        except DeployFailed as error:
            self._is_warm = False
            return FailedEvaluation(error.message)
        if (reason := _find_reading_failure(capacity.readings)) is not None:
            return FailedEvaluation(f"the load could not be generated: {reason}", is_fault=True)
        self._noise = capacity.noise
        return Measurement(
            _build_peak(capacity, self.slo),
            reading_count=len(capacity.readings),
            load_seconds=capacity.load_seconds,
            bottleneck=self.meter.find_bottleneck(settings, readings),
            # Use only the last warm-up windows. In earlier windows, the caches were filling, and cache
            # misses would lower the estimated capacity of the tiers behind the caches.
            capacities=self.meter.estimate_capacities(
                settings, [*self._windows[-SETTLED_WINDOWS:], *readings]
            ),
            rss=find_max_rss(readings),
            noise=capacity.noise,
        )

    def _forget_readings(self, restarted_instances: Iterable[str]) -> None:
        """Reset the state that was derived from readings before the deployment."""
        self._is_warm = self._is_warm and not self._loses_cache(restarted_instances)
        self._last_rate, self._errors_seen = 0.0, False
        self._recovery = self._recovery.with_deployment()

    def check_answers(self, record: Recorder, *, is_deployed: bool) -> None:
        """Take and record reference responses if they are due (`StackMeter.begin_measurement`)."""
        if references := self.meter.begin_measurement(is_deployed=is_deployed):
            record.on_references(references)

    def _warm_up(
        self, request: EvaluationRequest, record: Recorder, *, is_prefilled: bool
    ) -> WarmUpResult:
        def probe(rate: float, seconds: float) -> Reading:
            self._windows.append(self.take_reading(rate, seconds, record, WARM_UP_PURPOSE))
            return self._windows[-1].reading

        self._windows = []
        expected_rate = request.expected_peak.value if request.expected_peak else None
        # If the caches are already filled, skip the slow wait for a stable hit rate.
        count_lookups = (lambda: None) if self._is_warm else self.meter.count_cache_lookups
        warm_up_result = run_warm_up(
            probe,
            count_lookups,
            expected_rate,
            max_rate=self.limits.max_rate,
            start_rate=UNKNOWN_START_RATE if expected_rate else self._find_start_rate(),
            rise_windows=PREFILLED_RISE_WINDOWS if is_prefilled else RISE_WINDOWS,
            max_windows=int(min(MAX_WINDOWS, max(2.0, WINDOWS_PER_SECOND * request.max_seconds))),
            settling_seconds=WINDOW_LIMITS * self.slo.limit,
            max_seconds=WINDOWS_PER_SECOND * request.max_seconds,
        )
        self._is_warm = self._is_warm or warm_up_result.is_settled
        record.on_warm_up(warm_up_result)
        self.meter.end_warm_up(SETTLED_WINDOWS)
        return replace(warm_up_result, single_latency=self.meter.wait_until_drained())

    def _find_start_rate(self) -> float:
        """Return the first rate to try, in requests/s, for a stack without an expected peak.

        The rate is one request per measured latency, which a single worker sustains. At a higher rate,
        a load balancer's health checks could fail. If pages are slow, the search may also use lower
        rates than usual.
        """
        latencies = [self.meter.probe_latency() for _ in range(LATENCY_PROBES)]
        valid_latencies = [latency for latency in latencies if latency]
        if not valid_latencies:
            return UNKNOWN_START_RATE
        sequential_rate = 1.0 / min(valid_latencies)
        self._limits = replace(
            self._limits, min_rate=min(self._limits.min_rate, MIN_RATE_SHARE * sequential_rate)
        )
        return min(UNKNOWN_START_RATE, sequential_rate)

    def _measure_today(
        self, rate: float | None, expected_peak: Estimate | None, record: Recorder, deadline: float
    ) -> None:
        """Take a reading at ``rate`` if time allows and ``rate`` is below the expected peak and the
        load's maximum rate.

        At rates above the capacity, the latency would depend only on the duration of the load.
        """
        highest_rate = expected_peak.interval()[1] if expected_peak is not None else inf
        longest_seconds = TODAY_TIME_SHARE * (deadline - self.clock.now())
        if (
            rate is None
            or rate > min(highest_rate, self.limits.max_rate)
            or longest_seconds < MIN_TODAY_SECONDS
        ):
            return
        seconds = min(compute_today_seconds(rate, self.slo), longest_seconds)
        watched_reading = self.take_reading(rate, seconds, record, TODAY_PURPOSE)
        if not self.slo.is_met(watched_reading.reading):
            self.meter.wait_until_drained()

    def _search_capacity(
        self,
        request: EvaluationRequest,
        expected_peak: Estimate | None,
        base_latency: float,
        record: Recorder,
        deadline: float,
    ) -> tuple[Capacity, list[WatchedReading]]:
        watched_readings: list[WatchedReading] = []
        longest_seconds = 0.0  # duration of the longest reading in seconds

        def probe(rate: float, seconds: float) -> Reading:
            nonlocal longest_seconds
            start_time = self.clock.now()
            for step_rate in self._recovery.list_step_rates(rate):
                self.take_reading(step_rate, STEP_SECONDS, record, WARM_UP_PURPOSE)
            watched_readings.append(self.take_reading(rate, seconds, record, "peak"))
            reading = watched_readings[-1].reading
            self._note_recovery(reading, record)
            if not self.slo.is_met(reading):
                self.meter.wait_until_drained()
            longest_seconds = max(longest_seconds, self.clock.now() - start_time)
            return reading

        capacity = search_peak(
            probe,
            self.slo,
            expected_peak,
            target_sd=CLAIM_SD if request.is_claim else SEARCH_SD,
            is_exploration=request.is_exploration,
            incumbent=request.incumbent,
            noise=self._noise,
            limits=self._build_limits(request),
            base_latency=base_latency,
            # Start another reading only if at least half of the reading fits into the remaining time.
            is_late=lambda: self.clock.now() + longest_seconds / 2 >= deadline,
        )
        return capacity, watched_readings

    def _build_limits(self, request: EvaluationRequest) -> SearchLimits:
        slow_seconds = min(request.usual_seconds, request.max_seconds, MAX_SLOW_LOAD_SECONDS)
        limits = replace(self.limits, max_slow_load_seconds=slow_seconds)
        if request.is_claim:
            limits = replace(limits, max_stalled_readings=0, rough_sd=0.0)
        elif limits.rough_sd:
            rough_seconds = max(SHORT_STUDY_SHARE * request.usual_seconds, MIN_ROUGH_LOAD_SECONDS)
            if rough_seconds <= MAX_ROUGH_LOAD_SECONDS:
                limits = replace(limits, rough_load_seconds=rough_seconds)
        if request.expected_peak:
            limits = _adjust_min_rate(limits, request.expected_peak.value)
        return limits

    def _note_recovery(self, reading: Reading, record: Recorder) -> None:
        recovery = self._recovery.with_reading(reading, is_met=self.slo.is_met(reading))
        if recovery.needs_steps and not self._recovery.needs_steps:
            record.note(
                f"After an overload, the stack failed at {reading.rate:.0f} requests/s, a rate that it"
                " sustained before. From now on, the load rises in steps after each overload."
            )
        self._recovery = recovery

    def take_reading(
        self, rate: float, seconds: float, record: Recorder, purpose: str
    ) -> WatchedReading:
        """Send ``rate`` requests/s for ``seconds``, and record the reading with the CPU steal above the
        usual level. If a connection to a host is lost, the load is sent once more.

        Raises RateTooHigh if the rate exceeds the target's limit. Raises ServersDown if a load balancer
        still does not use all servers after the longest wait. Raises HostUnreachable.
        """
        check_rate(rate, self.limits.max_rate)
        ramp_seconds = self._choose_ramp_seconds(rate, purpose)
        for is_last_try in (False, True):
            # If an overload made health checks fail, the next reading waits for the servers.
            self.fleet.await_service(is_answer_doubtful=self._errors_seen)
            try:
                with self.clock.time_activity("load"):
                    watched_reading = self.meter.take_reading(
                        rate, seconds, ramp_seconds=ramp_seconds
                    )
                break
            except ConnectionLost as error:
                if is_last_try:
                    raise
                record.note(f"{error.message}; the reading is repeated")
        self._last_rate = 0.0 if watched_reading.reading.truncated else rate
        self._errors_seen = watched_reading.reading.error_count > 0
        stolen_share = round(self.steal.excess_steal(watched_reading.hosts), 4)
        watched_reading = replace(
            watched_reading, reading=replace(watched_reading.reading, stolen=stolen_share)
        )
        self.steal = self.steal.with_reading(watched_reading.hosts)
        record.on_reading(watched_reading, purpose)
        self._note_missing_figures(watched_reading.observations, record)
        if stolen_share > HIGH_STEAL_SHARE and not self._steal_noted:
            self._steal_noted = True
            host_name, fraction = find_worst_steal(watched_reading.hosts)
            record.note(
                f"CPU steal on host {host_name}: {fraction:.0%}. Readings are corrected; the report shows"
                " how many"
            )
        return watched_reading

    def _note_missing_figures(self, observations: Observations, record: Recorder) -> None:
        """Notify the user of each host without samples and each server without counters, once per
        session.
        """
        notes = {
            host_name: f"host {host_name} sent no CPU and memory samples during a reading: {reason}."
            " Diagnoses of such readings ignore this host"
            for host_name, reason in observations.unsampled.items()
        }
        for instance_name in observations.uncounted_instances:
            notes[instance_name] = (
                f"the counters of {instance_name} could not be read. Diagnoses do not find shortages"
                " that only these counters show"
            )
        for subject, text in notes.items():
            if subject not in self._noted_subjects:
                self._noted_subjects.add(subject)
                record.note(text)

    def _choose_ramp_seconds(self, rate: float, purpose: str) -> float:
        """Return the seconds of load before a reading counts.

        The result is 0 in a warm-up, whose readings do not count. If the previous reading had a similar
        or higher rate and was not truncated, the ramp is short, because process pools have already
        grown.
        """
        if purpose == WARM_UP_PURPOSE:
            return 0.0
        return (
            SHORT_RAMP_SECONDS
            if rate <= (1 + SHORT_RAMP_INCREASE) * self._last_rate
            else RAMP_SECONDS
        )


def _adjust_min_rate(limits: SearchLimits, expected_rate: float) -> SearchLimits:
    """Return the limits of a search with a minimum rate that suits the expected peak in requests/s.

    With an expected peak, as after a study was resumed, the latency of slow pages is not measured.
    """
    minimum_rate = min(limits.min_rate, MIN_RATE_SHARE * expected_rate)
    minimum_rate = max(minimum_rate, HOPELESS_PEAK_SHARE * expected_rate)
    return replace(limits, min_rate=min(minimum_rate, limits.max_rate))


def compute_today_seconds(rate: float, slo: Slo) -> float:
    """Return the duration, in seconds, of a reading at ``rate`` in which enough requests are slower
    than the SLO's percentile.
    """
    tail_rate = max(slo.allowed_violations, 1e-6) * rate
    return min(max(MIN_TODAY_SECONDS, TODAY_TAIL_REQUESTS / tail_rate), MAX_TODAY_SECONDS)


def update_expected_peak(
    expected_peak: Estimate | None, warm_up_result: WarmUpResult
) -> Estimate | None:
    """Return the expected peak after the warm-up.

    Without an expected peak, or if the stack limited the rate of the warm-up, the peak is probably
    somewhat above the sustained rate. If the stack failed at every rate, the peak is probably near the
    lowest rate. A search that starts near the peak finds the peak, instead of only proving that the peak
    is below the best peak.
    """
    if (minimum_rate := warm_up_result.failed_rate) is not None:
        return Estimate.from_value(minimum_rate, UNMEASURED_PEAK_SD)
    sustained_rate = warm_up_result.sustained_rate
    maximum_rate = max((window.rate for window in warm_up_result.windows), default=0.0)
    if sustained_rate is not None and (
        expected_peak is None or sustained_rate < OVERLOAD_RATE_SHARE * maximum_rate
    ):
        return Estimate.from_value(OVERLOAD_PEAK_FACTOR * sustained_rate, UNMEASURED_PEAK_SD)
    return expected_peak


def _find_reading_failure(readings: Sequence[Reading]) -> str | None:
    """Return the reason why no reading is valid, or ``None`` if at least one reading is valid."""
    if any(reading.is_valid for reading in readings):
        return None
    return next((r.limited for r in reversed(readings) if r.limited), None)


def _build_peak(capacity: Capacity, slo: Slo) -> Peak:
    return Peak(
        capacity.peak,
        capacity.low,
        capacity.high,
        capacity.sd,
        str(capacity.verdict),
        find_p99_at_peak(capacity, slo),
        capacity.limit,
    )


def find_p99_at_peak(capacity: Capacity, slo: Slo) -> float | None:
    """Return the 99th-percentile latency, in seconds, of the reading with the highest rate up to the
    peak that met the SLO.

    Readings that missed the SLO at a rate below the peak were disturbed, so they are ignored.
    """
    readings_at_peak = [r for r in capacity.readings if r.rate <= capacity.peak and slo.is_met(r)]
    return (
        max(readings_at_peak, key=lambda r: r.rate).percentile(0.99) if readings_at_peak else None
    )
