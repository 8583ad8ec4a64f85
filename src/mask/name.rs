//! Names that say that what they name is secret.

/// What a name says of its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Never shown, whatever it is.
    Secret,
    /// A secret as text; an object of this name is the payment's authorisation, and holds ordinary members.
    SecretText,
    /// A card number: the Luhn check is not needed for believing that it is one.
    Card,
    /// An account number.
    Account,
}

/// Parts of names (lower case, letters and digits only).
const SECRET_PARTS: [&str; 26] = [
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "пароль",
    "secret",
    "token",
    "apikey",
    "accesskey",
    "authkey",
    "signingkey",
    "encryptionkey",
    "privatekey",
    "sharedkey",
    "credential",
    "cookie",
    "sessionid",
    "cvc",
    "cvv",
    "securitycode",
    "pinblock",
    "track1",
    "track2",
    "trackdata",
    "magstripe",
    "cryptogram",
];

/// Short words, which are parts of many harmless ones: they count only as a word of a name (`card_pin`, `cardPin`).
const SECRET_WORDS: [&str; 7] = ["pin", "pwd", "otp", "csc", "cvn", "jwt", "bearer"];

const ACCOUNT_PARTS: [&str; 4] = ["iban", "accountnumber", "accountno", "acctnumber"];

/// Names that hold such a part and no secret. A lease's token fences writers; it opens nothing.
const PUBLIC: [&str; 3] = ["leasetoken", "idempotencykey", "maxtokens"];

/// Ends of names that say something about a secret and not the secret.
const PUBLIC_ENDS: [&str; 6] = ["required", "present", "status", "type", "expiresin", "expiresat"];

/// The same where a card's verification value or a PIN is checked: `cvc_check`, `cvv2_result`.
const CHECK_ENDS: [&str; 2] = ["check", "result"];

/// What a member, field or element of this name holds.
pub(super) fn kind(name: &str) -> Option<Kind> {
    let flat = flat(name);
    if flat.is_empty() || is_public(&flat) {
        return None;
    }
    if SECRET_PARTS.iter().any(|part| flat.contains(part)) {
        return Some(Kind::Secret);
    }
    if flat.contains("authorization") || flat.contains("authorisation") {
        return Some(Kind::SecretText);
    }
    let words = words(name);
    if words.iter().any(|word| SECRET_WORDS.contains(&word.as_str())) {
        return Some(Kind::Secret);
    }
    if flat.contains("cardnumber") || flat.contains("cardno") || words.iter().any(|word| word == "pan") {
        return Some(Kind::Card);
    }
    ACCOUNT_PARTS
        .iter()
        .any(|part| flat.contains(part))
        .then_some(Kind::Account)
}

fn is_public(flat: &str) -> bool {
    let ends = |ends: &[&str]| ends.iter().any(|end| flat.ends_with(end));
    let checked = ["cvc", "cvv", "pin"].iter().any(|part| flat.contains(part));
    PUBLIC.contains(&flat) || ends(&PUBLIC_ENDS) || (checked && ends(&CHECK_ENDS))
}

/// The same for a header, whose name may also end in `-Key`.
pub(super) fn of_header(name: &str) -> Option<Kind> {
    let flat = flat(name);
    let key = name.contains('-') && flat.ends_with("key") && !flat.contains("idempotency");
    kind(name).or(key.then_some(Kind::Secret))
}

/// Whether an object of this name describes a card, so that its `number` is the card's.
pub(super) fn is_card(name: &str) -> bool {
    flat(name).contains("card")
}

fn flat(name: &str) -> String {
    name.chars()
        .filter(|c| c.is_alphanumeric())
        .flat_map(char::to_lowercase)
        .collect()
}

/// The words of `snake_case`, `kebab-case`, `camelCase` and `a[b]`, in lower case.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = ' ';
    for c in name.chars() {
        let new = !c.is_alphanumeric() || (before.is_lowercase() && c.is_uppercase());
        if new {
            words.push(String::new());
        }
        if let (true, Some(word)) = (c.is_alphanumeric(), words.last_mut()) {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    words
}
