//! Which attributes each transition of a queue pair needs, and what a refusal says.

use std::io;

use rdmacm_kernel_abi::uverbs::{QpAttrMask, QpType};

use super::QpState;
use crate::error::Error;

/// What the kernel's refusal of a transition means. `EINVAL` alone would leave the reader to guess
/// among two dozen attributes.
pub(super) fn explain(
    kind: QpType,
    from: QpState,
    to: QpState,
    given: QpAttrMask,
    error: &io::Error,
) -> Error {
    let described = Error::from_os("modify_qp", error);
    if error.raw_os_error() != Some(libc::EINVAL) {
        return described;
    }
    let Some((needed, allowed)) = attributes(kind, from, to) else {
        return described.because(format!("{from:?} to {to:?} is no transition"));
    };
    let given = given - QpAttrMask::STATE;
    let missing = needed - given;
    let superfluous = given - needed - allowed;
    described.because(if !missing.is_empty() {
        format!("{from:?} to {to:?} needs {missing:?} as well")
    } else if !superfluous.is_empty() {
        format!("{from:?} to {to:?} does not allow {superfluous:?}")
    } else if from == QpState::Sqd {
        format!(
            "{from:?} to {to:?}: the send queue is not drained yet, or a value is out of the \
             device's range"
        )
    } else {
        format!("{from:?} to {to:?}: a value is out of the device's range")
    })
}

/// The attributes that a transition needs, and those it allows besides. `None` where there is no
/// transition.
fn attributes(kind: QpType, from: QpState, to: QpState) -> Option<(QpAttrMask, QpAttrMask)> {
    use QpAttrMask as A;
    use QpState::{Error, Init, Reset, Rtr, Rts, Sqd, Sqe};
    let none = A::empty();
    Some(match (from, to) {
        (Reset, Error) => return None,
        (_, Reset | Error) => (none, none),
        (Reset, Init) => (place(kind), none),
        (Init, Init) => (none, place(kind)),
        (Init, Rtr) => (receiving(kind), beside_receiving(kind)),
        (Rtr, Rts) => (sending(kind), beside_sending(kind)),
        (Rts | Sqd, Rts) => (none, beside_sending(kind)),
        (Sqe, Rts) => (none, after_an_error(kind)),
        (Rts, Sqd) => (none, A::EN_SQD_ASYNC_NOTIFY),
        (Sqd, Sqd) => (none, while_drained(kind)),
        _ => return None,
    })
}

/// Where a queue pair is, and what it lets in.
fn place(kind: QpType) -> QpAttrMask {
    use QpAttrMask as A;
    let place = A::PKEY_INDEX | A::PORT;
    match kind {
        QpType::UD => place | A::QKEY,
        _ => place | A::ACCESS_FLAGS,
    }
}

/// What a queue pair has to know of its peer before it receives.
fn receiving(kind: QpType) -> QpAttrMask {
    use QpAttrMask as A;
    let peer = A::AV | A::PATH_MTU | A::DEST_QPN | A::RQ_PSN;
    match kind {
        QpType::UD => A::empty(),
        QpType::UC | QpType::XRC_INI => peer,
        _ => peer | A::MAX_DEST_RD_ATOMIC | A::MIN_RNR_TIMER,
    }
}

fn beside_receiving(kind: QpType) -> QpAttrMask {
    use QpAttrMask as A;
    match kind {
        QpType::UD => A::PKEY_INDEX | A::QKEY,
        _ => A::PKEY_INDEX | A::ACCESS_FLAGS | A::ALT_PATH,
    }
}

/// What a queue pair has to know before it sends.
fn sending(kind: QpType) -> QpAttrMask {
    use QpAttrMask as A;
    match kind {
        QpType::UD | QpType::UC => A::SQ_PSN,
        QpType::XRC_TGT => A::SQ_PSN | A::TIMEOUT,
        _ => A::SQ_PSN | A::TIMEOUT | A::RETRY_CNT | A::RNR_RETRY | A::MAX_QP_RD_ATOMIC,
    }
}

fn beside_sending(kind: QpType) -> QpAttrMask {
    use QpAttrMask as A;
    let beside = A::CUR_STATE | A::ACCESS_FLAGS | A::ALT_PATH | A::PATH_MIG_STATE;
    match kind {
        QpType::UD => A::CUR_STATE | A::QKEY,
        QpType::UC | QpType::XRC_INI => beside,
        _ => beside | A::MIN_RNR_TIMER,
    }
}

/// Failed requests of reliable connections end in ERROR, and not here.
fn after_an_error(kind: QpType) -> QpAttrMask {
    use QpAttrMask as A;
    match kind {
        QpType::UD => A::CUR_STATE | A::QKEY,
        QpType::UC => A::CUR_STATE | A::ACCESS_FLAGS,
        _ => A::empty(),
    }
}

/// What may change while nothing is sent.
fn while_drained(kind: QpType) -> QpAttrMask {
    use QpAttrMask as A;
    let path = A::AV | A::ALT_PATH | A::PATH_MIG_STATE | A::ACCESS_FLAGS | A::PKEY_INDEX;
    let asking = A::PORT | A::TIMEOUT | A::RETRY_CNT | A::RNR_RETRY | A::MAX_QP_RD_ATOMIC;
    let answering = A::MAX_DEST_RD_ATOMIC | A::MIN_RNR_TIMER;
    match kind {
        QpType::UD => A::PKEY_INDEX | A::QKEY,
        QpType::UC => path,
        QpType::XRC_INI => path | asking,
        QpType::XRC_TGT => path | answering | A::PORT | A::TIMEOUT,
        _ => path | asking | answering,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use QpAttrMask as A;

    fn refusal(kind: QpType, from: QpState, to: QpState, given: QpAttrMask) -> String {
        let error = io::Error::from_raw_os_error(libc::EINVAL);
        let given = given | A::STATE;
        explain(kind, from, to, given, &error)
            .explanation()
            .to_owned()
    }

    #[test]
    fn a_refusal_names_what_is_missing_or_superfluous() {
        let missing = refusal(QpType::RC, QpState::Reset, QpState::Init, A::PORT);
        assert!(
            missing.contains("PKEY_INDEX") && missing.contains("ACCESS_FLAGS"),
            "{missing}"
        );
        assert!(!missing.contains("PORT"), "{missing}");
        let superfluous = refusal(QpType::RC, QpState::Rts, QpState::Error, A::TIMEOUT);
        assert!(superfluous.contains("does not allow") && superfluous.contains("TIMEOUT"));
        let impossible = refusal(QpType::RC, QpState::Reset, QpState::Rts, A::empty());
        assert!(impossible.contains("no transition"), "{impossible}");
    }

    #[test]
    fn each_type_has_its_own_attributes() {
        let init = A::PORT | A::PKEY_INDEX;
        let text = |kind, given| refusal(kind, QpState::Reset, QpState::Init, given);
        assert!(text(QpType::UD, init).contains("needs QpAttrMask(QKEY)"));
        assert!(text(QpType::UC, init).contains("needs QpAttrMask(ACCESS_FLAGS)"));
        let datagrams = text(QpType::UD, init | A::QKEY | A::ACCESS_FLAGS);
        assert!(datagrams.contains("does not allow QpAttrMask(ACCESS_FLAGS)"));
        let path = refusal(QpType::UD, QpState::Init, QpState::Rtr, A::AV);
        assert!(path.contains("does not allow QpAttrMask(AV)"), "{path}");
        let number = refusal(QpType::UD, QpState::Rtr, QpState::Rts, A::empty());
        assert!(number.contains("needs QpAttrMask(SQ_PSN)"), "{number}");
    }

    #[test]
    fn a_drained_queue_pair_is_told_what_its_type_can_change() {
        let text = |kind, from, to, given| refusal(kind, from, to, given);
        let (rts, sqd) = (QpState::Rts, QpState::Sqd);
        let going = text(QpType::RC, rts, sqd, A::TIMEOUT);
        assert!(
            going.contains("does not allow QpAttrMask(TIMEOUT)"),
            "{going}"
        );
        let quiet = text(QpType::RC, rts, sqd, A::EN_SQD_ASYNC_NOTIFY);
        assert!(quiet.contains("out of the device's range"), "{quiet}");
        for kind in [QpType::UC, QpType::UD, QpType::XRC_TGT] {
            let there = text(kind, sqd, sqd, A::RETRY_CNT);
            assert!(
                there.contains("does not allow QpAttrMask(RETRY_CNT)"),
                "{kind:?}: {there}"
            );
        }
        for (kind, given) in [
            (QpType::RC, A::AV | A::RETRY_CNT | A::MIN_RNR_TIMER),
            (QpType::UC, A::AV | A::ACCESS_FLAGS),
            (QpType::UD, A::QKEY | A::PKEY_INDEX),
            (QpType::XRC_INI, A::AV | A::RNR_RETRY),
            (QpType::XRC_TGT, A::AV | A::MIN_RNR_TIMER | A::TIMEOUT),
        ] {
            let there = text(kind, sqd, sqd, given);
            assert!(there.contains("not drained yet"), "{kind:?}: {there}");
        }
        let failed = text(QpType::RC, QpState::Sqe, rts, A::ACCESS_FLAGS);
        assert!(
            failed.contains("does not allow QpAttrMask(ACCESS_FLAGS)"),
            "{failed}"
        );
    }
}
